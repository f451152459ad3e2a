"""The verifier as a service: gRPC in, frames out on NATS."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, ClassVar

import grpc
import msgspec
from outrider.mesh.errors import (
    AlreadyExists,
    DeadlineUnmeetable,
    NotFound,
    Unavailable,
)
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import get_logger
from outrider.models.speculation import DraftTree
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc as pb_grpc
from outrider.verifier.decode.outcome import Outcome, Queued
from outrider.verifier.logits.deep_threads import deep_stacks
from outrider.verifier.logits.grammar_compiler import Compiler
from outrider.verifier.metrics import Metrics
from outrider.verifier.pages.announcements import Newsroom
from outrider.verifier.pages.exchange import Exchange
from outrider.verifier.pages.named_prompts import NamedPrompts
from outrider.verifier.requests.conversion import lease_seconds, request_from_proto
from outrider.verifier.requests.parameters import check
from outrider.verifier.requests.sequence import Request
from outrider.verifier.rpc.cores import Cores
from outrider.verifier.rpc.frame_log import Entry
from outrider.verifier.rpc.leases import Leases
from outrider.verifier.rpc.proposers import RemoteDrafting
from outrider.verifier.scheduling.refusals import queued
from outrider.verifier.settings import VerifierSettings
from outrider.verifier.target import PARTS, Parts, Target
from outrider.wire.frames import encode_frame, token_subject

_MEASURED_EVERY_S = 0.1
"""Prometheus's counters cost as much as a small model's step, so they follow the engine's at this distance, but at
once where a request ends."""
_INT32 = (1 << 31) - 1

_log = get_logger("verifier")


class VerifierService(Service, pb_grpc.VerifierServicer):
    """Holds the target model. Everything it says is decided in the engine's thread.

    ``parts`` are what the verifier is made of.
    """

    kind: ClassVar[str] = "verifier"
    local: ClassVar[bool] = True
    settings: ClassVar[type[VerifierSettings]] = VerifierSettings
    parts: ClassVar[Parts] = PARTS

    def __init__(self, settings: VerifierSettings) -> None:
        self._settings = settings
        self._log = self.parts.log()
        self._metrics = Metrics()
        self._leases = Leases(self._on_expired)
        self._draining = False
        self._idle = asyncio.Event()
        self._started = False
        self._measuring: asyncio.TimerHandle | None = None
        self._queue_s = 0.0

    async def start(self, mesh: Mesh) -> None:
        """Loads the model, measures its steps and starts to decide."""
        self._mesh, self._loop = mesh, asyncio.get_running_loop()
        sys.setswitchinterval(0.0005)
        self._target = await asyncio.to_thread(Target.load, self._settings, self.parts)
        self._engine = self._target.engine
        self._metrics.rule(self._target.runner.rule)
        self._compiler = Compiler(self._target.grammars)
        self._thread = self.parts.thread(self._engine, self._from_engine, self._engine_failed)
        self._news = Newsroom(mesh.bus, mesh.tasks, mesh.instance, self._thread, self._target.pages)
        self._drafting = RemoteDrafting(
            mesh.instance,
            self._target.tokenizer.fingerprint,
            mesh.registry,
            mesh.tasks,
            self._offer,
            self._target.drafters.add,
            Cores(self._target.runner.model, self._settings.threads_beside, self._thread.post).share,
        )
        self._drafting.start()
        self._prompts = NamedPrompts(
            mesh.bus,
            self._target.tokenizer,
            self._target.name,
            self._engine.scheduler.limits,
            self._engine.scheduler.pins,
            self._thread,
            self._run,
        )
        pb_grpc.add_VerifierServicer_to_server(self, mesh.rpc)
        self._exchange = Exchange(
            mesh,
            self._settings,
            self._target.directory,
            self._target.runner,
            self._engine,
            self._thread,
            self._target.served,
            self._target.token_s,
        )
        self._exchange.start()
        with deep_stacks():
            self._thread.start()
        if self._settings.pinned_share:
            mesh.tasks.spawn(self._prompts.follow(), "named prompts")
        self._started = True

    def status(self) -> dict[str, Any]:
        """What the registry tells of this verifier; the queue is the one at the last time that it was asked for."""
        self._thread.post(self._look)
        self._measure_soon(False)
        return {
            "heartbeats": True,
            "model": self._target.name,
            "vocabulary": self._target.tokenizer.fingerprint,
            "context_length": self._target.room,
            "load": self._engine.load,
            "determinism": self._settings.determinism,
            "lossy": self._engine.lossy,
            "waiting": len(self._engine.scheduler.waiting),
            "queue_ms": round(self._queue_s * 1e3),
            "prefill_tokens_per_s": round(1 / self._engine.estimate.row_s),
            "tokens_per_s": round(1 / self._engine.estimate.token_s),
            "cost": self._settings.cost,
            "free_pages": self._target.pages.available,
            "pinned": self._prompts.kept,
            "page_size": self._settings.page_size,
            "page_epoch": self._news.epoch,
            "page_news": self._news.number,
        } | self._exchange.status()

    def _look(self) -> None:
        self._queue_s = self._engine.estimate.queue(self._engine.scheduler)

    async def drain(self) -> None:
        """Takes nothing new and waits for what runs."""
        self._draining = True
        self._exchange.drain()
        while self._engine.load:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Ends the engine."""
        if self._started:
            await self._drafting.stop()
            self._compiler.stop()
            self._thread.stop()
            await asyncio.to_thread(self._thread.join, 5.0)

    async def Submit(self, message: pb.SubmitRequest, context: grpc.aio.ServicerContext) -> pb.SubmitResponse:  # noqa: N802
        """Queues a request."""
        if self._draining:
            raise Unavailable("this verifier is draining")
        now = self._engine.scheduler.now()
        request, lease_s = request_from_proto(message, self._target.served, now), lease_seconds(message)
        if message.sampling.HasField("grammar"):
            grammar = await self._compiler.compile(message.sampling.grammar, message.tenant)
            request = replace(request, grammar=grammar)
        entry = Entry.of(message) if message.stream_id else None
        place = await self._queue(request, lease_s, entry)
        expected_ms = min(round(place.first_s * 1e3), _INT32)
        return pb.SubmitResponse(queued_ahead=place.ahead, instance=self._mesh.instance, expected_ttft_ms=expected_ms)

    async def _run(self, request: Request) -> None:
        """Has a request of the verifier's own run to its end."""
        await self._queue(request)
        async for _ in self._log.follow(request.id, 0):
            pass

    async def _queue(self, request: Request, lease_s: float = 0.0, entry: Entry | None = None) -> Queued:
        """Has the engine take a request; `AlreadyExists` where the engine holds it.

        The engine's thread has the log opened and the lease granted, if and only if the engine takes the request: a
        caller that leaves at any moment leaves either all of it or nothing.
        """

        def take() -> Queued:
            if self._engine.holds(request.id):
                raise AlreadyExists(f"request {request.id} is being served", param="request_id")
            place = self._engine.submit(request)
            self._loop.call_soon_threadsafe(self._on_taken, request.id, lease_s, entry)
            return place

        try:
            return await queued(self._thread.call(take), self._metrics.queue_seconds())
        except DeadlineUnmeetable:
            self._metrics.unmeetable()
            raise

    def _on_taken(self, request_id: str, lease_s: float, entry: Entry | None) -> None:
        """Runs before the request's first frame is published, and before its caller is answered."""
        self._log.open(request_id)
        if entry is not None:
            self._log.enter(request_id, entry)
        if lease_s:
            self._leases.grant(request_id, lease_s)

    async def Cancel(self, message: pb.CancelRequest, context: grpc.aio.ServicerContext) -> pb.CancelResponse:  # noqa: N802
        """Ends a request."""
        request, reason = message.request_id, message.reason or None
        if message.forget:
            self._log.unenter(request)
        cancelled = await asyncio.wrap_future(self._thread.call(lambda: self._engine.cancel(request, reason)))
        return pb.CancelResponse(cancelled=cancelled)

    async def Renew(self, message: pb.RenewRequest, context: grpc.aio.ServicerContext) -> pb.RenewResponse:  # noqa: N802
        """Puts off the end of leases."""
        check(message.lease_ms >= 1, "lease_ms", f"must be at least 1, not {message.lease_ms}")
        self._leases.renew(message.request_ids, message.lease_ms / 1e3)
        for request in message.recorded:
            self._log.record(request)
        return pb.RenewResponse()

    def _on_expired(self, request_id: str) -> None:
        _log.warning("nobody wants a request any more", request=request_id)
        self._thread.call(lambda: self._engine.cancel(request_id))

    async def Follow(  # noqa: N802
        self, message: pb.FollowRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FollowResponse]:
        """Frames past the broker, and signs of life between them for who asks for these."""
        name, heartbeat_s = message.request_id, message.heartbeat_ms / 1e3
        check(heartbeat_s >= 0, "heartbeat_ms", f"must be at least 0, not {message.heartbeat_ms}")
        try:
            if message.so_far:
                for frame in self._log.so_far(name, message.from_index):
                    yield pb.FollowResponse(frame=frame)
                return
            async for following in self._log.follow(name, message.from_index, heartbeat_s or None):
                if following is not None:
                    yield pb.FollowResponse(frame=following)
                elif await self._held(name):
                    yield pb.FollowResponse(held=True)
                elif self._log.running(name):
                    _log.error("a request had a log and no place in the engine", request=name)
                    self._log.discard(name)
        except KeyError:
            raise NotFound(f"request {name} is not known here", param="request_id") from None

    async def _held(self, request_id: str) -> bool:
        """Whether the engine has the request, by its own word; frames said before are in the log by then."""
        return await asyncio.wrap_future(self._thread.call(lambda: self._engine.holds(request_id)))

    async def Recall(self, message: pb.RecallRequest, context: grpc.aio.ServicerContext) -> pb.RecallResponse:  # noqa: N802
        """What is known of a stream's requests."""
        recalled = pb.RecallResponse()
        for data, running in self._log.entries(message.tenant, message.stream_id):
            request = recalled.requests.add()
            request.ParseFromString(data)
            request.running = running
        return recalled

    async def Pages(self, message: pb.PagesRequest, context: grpc.aio.ServicerContext) -> pb.PagesResponse:  # noqa: N802
        """The pages that are here."""
        return await self._news.tell(message.epoch)

    async def Describe(self, message: pb.DescribeRequest, context: grpc.aio.ServicerContext) -> pb.DescribeResponse:  # noqa: N802
        """The model and its limits."""
        return pb.DescribeResponse(
            model=self._target.name,
            vocabulary=self._target.tokenizer.fingerprint,
            context_length=self._target.room,
            vocabulary_size=self._target.served.vocabulary_size,
            dtype=self._target.dtype,
            determinism=self._settings.determinism,
            pages=self._target.pages.total,
            free_pages=self._target.pages.available,
            page_size=self._settings.page_size,
        )

    def _from_engine(self, outcome: Outcome) -> None:
        self._loop.call_soon_threadsafe(self._publish, outcome)

    def _publish(self, outcome: Outcome) -> None:
        self._drafting.tell(outcome)
        for request, frame in outcome.frames:
            if request.handed:
                continue
            if frame.finish is not None:
                frame = msgspec.structs.replace(frame, verifier=self._mesh.instance)
                self._leases.end(request.id)
            data = encode_frame(frame)
            self._mesh.bus.publish(token_subject(request.tenant, request.id), data)
            self._log.append(request.id, data, frame.first_index + len(frame.tokens), frame.finish is not None)
            if frame.finish is not None:
                self._metrics.finished()
        self._measure_soon(any(frame.finish is not None for _, frame in outcome.frames))
        if not self._engine.load:
            self._idle.set()

    def _measure_soon(self, at_once: bool) -> None:
        if self._measuring is not None and at_once:
            self._measuring.cancel()
            self._measuring = None
        if self._measuring is None:
            self._measuring = self._loop.call_later(0 if at_once else _MEASURED_EVERY_S, self._measure)

    def _measure(self) -> None:
        self._measuring = None
        self._metrics.update(self._engine)

    def _offer(self, trees: list[tuple[int, DraftTree]], source: str) -> None:
        def take() -> None:
            for number, tree in trees:
                self._engine.offer(number, tree, source)

        self._thread.post(take)

    def _engine_failed(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._mesh.tasks.spawn, _raise(error), "engine")


async def _raise(error: BaseException) -> None:
    raise error
