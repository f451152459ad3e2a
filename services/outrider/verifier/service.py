"""The verifier as a service: gRPC in, frames out on NATS."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Any, ClassVar

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.engine_thread import EngineThread
from outrider.engine.decode.outcome import Outcome
from outrider.engine.errors import RankLost, SettingsError
from outrider.engine.logits.deep_threads import deep_stacks
from outrider.engine.logs import use_loggers
from outrider.engine.speculation import DraftTree
from outrider.engine.target import PARTS, Parts, Target
from outrider.engine.worker import Inbox
from outrider.mesh.errors import ConfigError
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import get_logger
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from outrider.verifier.drafter_versions import DrafterVersions
from outrider.verifier.grammars.grammar_compiler import Compiler
from outrider.verifier.memory_lock import measuring_alone
from outrider.verifier.metrics import Metrics, show_gpus
from outrider.verifier.pages.announcements import PageAnnouncer
from outrider.verifier.pages.named_prompts import NamedPrompts
from outrider.verifier.pages.page_exchange import PageExchange
from outrider.verifier.rpc.departure import Departure
from outrider.verifier.rpc.frame_log import FrameLog
from outrider.verifier.rpc.leases import Leases
from outrider.verifier.rpc.methods import Methods
from outrider.verifier.rpc.proposers import RemoteDrafting
from outrider.verifier.rpc.publisher import Publisher
from outrider.verifier.rpc.shares import Shares
from outrider.verifier.rpc.submissions import Submissions
from outrider.verifier.rpc.thread_sharing import ThreadSharing
from outrider.verifier.settings import VerifierSettings
from outrider.verifier.tracing.step_telemetry import StepTelemetry

_SWITCH_S = 0.0005
"""Seconds after which the engine's thread yields to the event loop."""

_EXPIRED_EVERY_S = 10.0
_LOST_CODE = 1

_log = get_logger("verifier")


class VerifierService(Service):
    """Holds the target model. The engine's thread decides every token.

    ``parts`` are what the verifier is made of.

    Attributes:
        inbox: inbox of the engine's thread.
        log: frames of running and recently finished requests.
    """

    kind: ClassVar[str] = "verifier"
    follows: ClassVar[tuple[str, ...]] = ("kvcache", "proposer", "verifier")
    local: ClassVar[bool] = True
    settings: ClassVar[type[VerifierSettings]] = VerifierSettings
    parts: ClassVar[Parts] = PARTS
    methods: ClassVar[type[Methods]] = Methods

    def __init__(self, settings: VerifierSettings) -> None:
        self._settings = settings
        self.inbox, self.log = Inbox(), FrameLog()
        self._leases = Leases(self._on_expired)
        self._started, self._queue_s = False, 0.0

    @property
    def engine(self) -> Engine:
        """The engine, once started. Only its own thread may touch it."""
        return self._engine

    async def start(self, mesh: Mesh) -> None:
        """Loads the model, measures its steps and starts the engine."""
        self._mesh, self._loop = mesh, asyncio.get_running_loop()
        sys.setswitchinterval(_SWITCH_S)
        self._target = target = await asyncio.to_thread(self._load)
        self._exchange = PageExchange(mesh, self._settings, target, self.inbox)
        self._engine = target.engine(self._exchange.cache)
        metrics = Metrics(target.name, self._engine, self._settings.peak_tflops * 1e12)
        metrics.rule(target.runner.rule)
        metrics.cost(target.cost)
        if self._settings.device.startswith("cuda"):
            show_gpus()
        self._submissions = Submissions(self._engine, self.inbox, self.log, self._leases, metrics)
        self._compiler = Compiler(target.grammars)
        self._announcer = PageAnnouncer(mesh.bus, mesh.tasks, mesh.instance, self.inbox, target.pages)
        self._drafting = self._make_drafting(mesh, target)
        self._publisher = Publisher(
            mesh.instance, mesh.bus, self.log, self._leases, self._drafting, metrics, self._engine
        )
        self._prompts = NamedPrompts(
            mesh.bus,
            target,
            self.inbox,
            self._submissions.run,
            self._settings.residency,
            self._settings.tenant_pinned_share,
        )
        self._versions = DrafterVersions(mesh.bus, target, self._engine, self.inbox, metrics.refused)
        self._methods = self.methods(
            mesh.instance,
            target,
            self._describe,
            self._submissions,
            self._compiler,
            self.log,
            self._leases,
            self._announcer,
        )
        pb_grpc.add_VerifierServicer_to_server(self._methods, mesh.rpc)
        self._thread = EngineThread(self._engine, self.inbox, self._from_engine, self._on_failure)
        self._drafting.start()
        with deep_stacks():
            self._thread.start()
        await self._exchange.start(self._engine)
        if self._settings.pinned_share:
            mesh.tasks.spawn(self._prompts.follow(), "named prompts")
        if self._settings.drafters:
            mesh.tasks.spawn(self._versions.follow(), "versions of drafters")
        scheduler = self._engine.scheduler
        await Shares(mesh.bus, mesh.registry, mesh.instance, target.name, self.inbox, scheduler).start(mesh.tasks)
        mesh.tasks.spawn(self._expire(), "expiry")
        if target.ranks is not None:
            target.ranks.watch(_die)
        self._started = True

    def _load(self) -> Target:
        """Loads the target; `ConfigError` if the settings are wrong."""
        use_loggers(get_logger)
        try:
            return Target.load(self._settings.engine(), self.parts, StepTelemetry(), measuring_alone())
        except SettingsError as error:
            raise ConfigError(str(error)) from None

    def _make_drafting(self, mesh: Mesh, target: Target) -> RemoteDrafting:
        thread_sharing = ThreadSharing(target.runner.model, self._settings.threads_beside, self.inbox.post)
        return RemoteDrafting(
            mesh.instance,
            target.tokenizer.fingerprint,
            mesh.registry,
            mesh.tasks,
            self._offer,
            target.drafters.add,
            thread_sharing.share,
            lambda seeing: self.inbox.post(lambda: self._engine.seen_by(seeing)),
            target.runner.model.config.layers + 1,
        )

    def status(self) -> dict[str, Any]:
        """Status for the registry; ``queue_ms`` was estimated at the previous announcement."""
        self.inbox.post(self.estimate_queue)
        self._publisher.update_metrics()
        engine, target = self._engine, self._target
        return {
            "heartbeats": True,
            "embeddings": True,
            "batches": True,
            "model": target.name,
            "vocabulary": target.tokenizer.fingerprint,
            "context_length": target.room,
            "end_token_ids": sorted(target.model_limits.eos_ids),
            "load": engine.load,
            "determinism": self._settings.determinism,
            "lossy": engine.lossy,
            "waiting": len(engine.scheduler.waiting),
            "queue_ms": round(self._queue_s * 1e3),
            "prefill_tokens_per_s": round(1 / engine.estimate.row_s),
            "tokens_per_s": round(1 / engine.estimate.token_s),
            "cost": self._settings.cost,
            "hint": target.hint,
            "free_pages": target.pages.available,
            "pinned": self._prompts.pinned,
            "page_size": self._settings.page_size,
            "page_epoch": self._announcer.epoch,
            "page_news": self._announcer.number,
            "drafters": self._versions.status(),
        } | self._exchange.status()

    def estimate_queue(self) -> None:
        """Estimates how long the queue takes, and notes its oldest request. In the engine's thread."""
        scheduler = self._engine.scheduler
        self._queue_s = self._engine.estimate.queue(scheduler)
        self._engine.tally.oldest_since = scheduler.waiting.oldest_since()

    def _describe(self) -> pb.DescribeResponse:
        target = self._target
        return pb.DescribeResponse(
            model=target.name,
            vocabulary=target.tokenizer.fingerprint,
            context_length=target.room,
            vocabulary_size=target.model_limits.vocabulary_size,
            dtype=target.dtype,
            determinism=self._settings.determinism,
            pages=target.pages.total,
            free_pages=target.pages.available,
            page_size=self._settings.page_size,
        )

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Ends the tenant's requests; drops their frames, their pages, and what drafters learnt from their answers.

        Memory of pages that are free then is overwritten with zeros.
        """
        await self._prompts.erase(tenant)
        end = partial(self._engine.forget, tenant, "the tenant was erased")
        ended, pages = await asyncio.wrap_future(self.inbox.call(end))
        await asyncio.wrap_future(self.inbox.call(bool))  # on return the log has all frames
        answers, waiting = self.log.forget(tenant), await self._exchange.erase(tenant)
        await self._compiler.clear()
        self._target.tokenizer.forget()
        await self._exchange.wipe()
        return {"running requests": ended, "answers": answers, "pages": pages + waiting}

    async def _expire(self) -> None:
        """Drops what was not used for long: frames after their own time, all else within ``keep_s`` seconds."""
        period_s = self._settings.keep_s / 2
        due = self._loop.time() + period_s
        while True:
            await asyncio.sleep(min(_EXPIRED_EVERY_S, period_s))
            self.log.expire()
            if self._loop.time() >= due:
                due = self._loop.time() + period_s
                await asyncio.wrap_future(self.inbox.call(self._engine.expire))
                self._compiler.expire()
                self._target.tokenizer.forget()

    async def drain(self) -> None:
        """Refuses new requests, and leaves the running ones to other verifiers; ends those that no other can take."""
        self._methods.drain()
        self._exchange.drain()
        mesh, target = self._mesh, self._target
        departure = Departure(mesh.instance, mesh.registry, self._engine, self.inbox, self._publisher, self._exchange)
        await departure.run(target.name, target.tokenizer.fingerprint)

    async def stop(self) -> None:
        """Stops the engine."""
        if self._started:
            await self._drafting.stop()
            self._compiler.stop()
            self._thread.stop()
            await asyncio.to_thread(self._thread.join, 5.0)
            if self._target.ranks is not None:
                await asyncio.to_thread(self._target.ranks.stop)

    def _offer(self, trees: list[tuple[int, DraftTree]], source: str) -> None:
        def take() -> None:
            for number, tree in trees:
                self._engine.offer(number, tree, source)

        self.inbox.post(take)

    def _on_expired(self, request_id: str) -> None:
        _log.warning("a request's lease expired", request=request_id)
        self.inbox.call(lambda: self._engine.cancel(request_id))

    def _from_engine(self, outcome: Outcome) -> None:
        self._loop.call_soon_threadsafe(self._publisher.publish, outcome)

    def _on_failure(self, error: BaseException) -> None:
        if isinstance(error, RankLost):
            _die(error)
        self._loop.call_soon_threadsafe(self._mesh.tasks.spawn, _raise(error), "engine")


def _die(error: RankLost) -> None:
    """Ends the process as if it were killed: other verifiers take over its streams, and nothing is said to readers."""
    _log.error("the verifier ends at once", reason=str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_LOST_CODE)


async def _raise(error: BaseException) -> None:
    raise error
