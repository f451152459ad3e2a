"""The proposer as a service: one stream for each verifier, one drafter for all verifiers."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import grpc
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.threads import use_threads
from outrider.engine.speculation import (
    Drafter,
    DrafterError,
    DraftTree,
    Opening,
)
from outrider.engine.speculation.drafters.drafter import make_drafter
from outrider.engine.text import TextError
from outrider.mesh import plugins
from outrider.mesh.errors import ConfigError, FailedPrecondition, InvalidRequest
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import gauge, get_logger, timeline, tracing
from outrider.mesh.telemetry.timeline import DraftRound, Timeline, TreeSize
from outrider.native.share import sentence
from outrider.proposer import drafter_calls
from outrider.proposer.checks import check_request, sampling_of
from outrider.proposer.context import drafter_context, lacks_draft_model
from outrider.proposer.draft_spans import DraftSpans
from outrider.proposer.drafter_thread import DrafterThread
from outrider.proposer.settings import ProposerSettings
from outrider.v1 import proposer_pb2 as pb
from outrider.v1 import proposer_pb2_grpc as pb_grpc
from outrider.wire.ids import pack_floats, pack_ids, unpack_ids

_SHOWN_S = 1e-4
"""Seconds from which a round without trees is in the time line: it read a prompt."""

_log = get_logger("proposer")
_sessions = gauge("proposer_sessions", "Sequences of verifiers that the drafter follows.")


class _Stream:
    """One verifier's stream: the drafter's number of each session, and the latest unsent tree of each session."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.trees: dict[int, pb.Tree] = {}
        self.news = asyncio.Event()


class ProposerService(Service, pb_grpc.ProposerServicer):
    """Runs a drafter for any number of verifiers, batched over all their sequences."""

    kind: ClassVar[str] = "proposer"
    settings: ClassVar[type[ProposerSettings]] = ProposerSettings

    def __init__(self, settings: ProposerSettings) -> None:
        self._settings = settings
        self._numbers = itertools.count(1)
        self._owners: dict[int, tuple[_Stream, int]] = {}
        self._streams: set[_Stream] = set()
        self._spans = DraftSpans()
        self._draining = asyncio.Event()
        self._started = False

    async def start(self, mesh: Mesh) -> None:
        """Loads the drafter and starts to guess; stays idle where no draft model is for the target."""
        self._mesh, self._loop = mesh, asyncio.get_running_loop()
        sys.setswitchinterval(0.0005)
        await asyncio.to_thread(self._load)
        if self._idle:
            _log.warning("idle: the shipped draft model does not guess for this target, and no other is named")
            return
        _sessions.set_function(lambda: len(self._owners))
        self._thread = DrafterThread(self._drafter, self._from_drafter, self._drafter_failed, self._drafted)
        pb_grpc.add_ProposerServicer_to_server(self, mesh.rpc)
        self._thread.start()
        mesh.tasks.spawn(self._expire(), "expiry")
        self._started = True

    def _load(self) -> None:
        """Loads the drafter; none if it is the shipped one, and the target is not."""
        _log.info("share of the machine", share=sentence(), threads=use_threads(self._settings.threads))
        try:
            plugin = plugins.load("outrider.drafters", self._settings.drafter)
            self._context = context = drafter_context(self._settings)
            self._vocabulary = context.vocabulary
            self._idle = lacks_draft_model(self._settings, plugin, context)
            if self._idle:
                return
            self._drafter: Drafter = make_drafter(plugin, self._settings.drafter, context)
            self._layers = self._drafter.traits.layers
            hidden_size = context.config.hidden_size if context.config is not None else 0
            self._state_bytes = self._drafter.traits.token_bytes(hidden_size)
            if self._layers:
                _log.info("the drafter takes states", layers=list(self._layers), bytes_a_token=self._state_bytes)
        except (DrafterError, ModelError, TextError) as error:
            raise ConfigError(str(error)) from None

    def status(self) -> dict[str, Any]:
        """Status for the registry."""
        if self._idle:
            return {"vocabulary": "", "drafter": "none", "load": 0}
        return {"vocabulary": self._vocabulary, "drafter": self._drafter.name, "load": len(self._owners)}

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Has the drafter drop what it learnt from the tenant's answers."""
        if self._started:
            await asyncio.wrap_future(self._thread.call(lambda drafter: drafter.forget(tenant)))
        return {}

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._settings.keep_s / 2)
            self._thread.post(lambda drafter: drafter.expire())

    async def drain(self) -> None:
        """Ends the streams: verifiers go on with another proposer or without guesses."""
        self._draining.set()
        for stream in self._streams:
            stream.news.set()

    async def stop(self) -> None:
        """Stops the drafter."""
        if self._started:
            self._thread.stop()
            await asyncio.to_thread(self._thread.join, 5.0)

    async def Draft(  # noqa: N802
        self, requests: AsyncIterator[pb.DraftRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.DraftResponse]:
        """Serves one verifier's stream: takes sessions and commits, yields trees.

        Raises `InvalidRequest` for a message that cannot be, which ends the stream and its sessions.
        """
        first = await anext(aiter(requests), pb.DraftRequest())
        if not first.HasField("hello"):
            raise InvalidRequest("the first message must say hello", param="hello")
        if first.hello.vocabulary != self._vocabulary:
            raise FailedPrecondition(
                f"the verifier's vocabulary ({first.hello.vocabulary[:12]}) is not the drafter's "
                f"({self._vocabulary[:12]})"
            )
        _log.info("verifier joined", verifier=first.hello.instance)
        stream = _Stream()
        self._streams.add(stream)
        reader = asyncio.create_task(self._read(stream, requests))
        try:
            yield pb.DraftResponse(hello=self._hello())
            async for response in self._responses(stream, reader):
                yield response
            if reader.done():
                reader.result()
        finally:
            reader.cancel()
            self._streams.discard(stream)
            self._close(stream, list(stream.numbers))

    def _hello(self) -> pb.ProposerHello:
        return pb.ProposerHello(
            instance=self._mesh.instance,
            drafter=self._drafter.name,
            context_length=self._drafter.context_length,
            layers=self._layers,
            whole=bool(self._layers) and self._drafter.traits.whole,
        )

    async def _responses(self, stream: _Stream, reader: asyncio.Task[None]) -> AsyncIterator[pb.DraftResponse]:
        while not self._draining.is_set() and not reader.done():
            await stream.news.wait()
            stream.news.clear()
            trees, stream.trees = stream.trees, {}
            if trees:
                if (events := timeline()) is not None:
                    events.message("trees", False, [(session, tree.length) for session, tree in trees.items()])
                yield pb.DraftResponse(trees=trees.values())

    async def _read(self, stream: _Stream, requests: AsyncIterator[pb.DraftRequest]) -> None:
        sizes = self._context.vocabulary_size, self._state_bytes, self._context.context_length
        try:
            async for request in requests:
                check_request(request, stream.numbers, *sizes)
                self._take(stream, request)
        finally:
            stream.news.set()

    def _take(self, stream: _Stream, request: pb.DraftRequest) -> None:
        if (events := timeline()) is not None:
            _note_request(events, request)
        for opened in request.opens:
            number = stream.numbers[opened.session] = next(self._numbers)
            self._owners[number] = (stream, opened.session)
            if tracing():
                self._spans.open(number, opened.traceparent, self._drafter.name)
            self._open(number, opened)
        commits = [
            (stream.numbers[commit.session], commit.length, unpack_ids(commit.tokens))
            for commit in request.commits
            if commit.session in stream.numbers
        ]
        if commits:
            self._thread.post(lambda drafter: drafter_calls.commit(drafter, commits))
        if seen := [
            (stream.numbers[states.session], states.start, self._unpacked(states.states))
            for states in request.states
            if states.session in stream.numbers
        ]:
            self._thread.post(lambda drafter: drafter_calls.see(drafter, seen))
        if rests := [stream.numbers[session] for session in request.rests if session in stream.numbers]:
            self._thread.post(lambda drafter: drafter_calls.rest(drafter, rests))
        self._close(stream, request.closes)

    def _unpacked(self, data: bytes) -> torch.Tensor:
        """States as in `Drafter.see`."""
        tokens = len(data) // self._state_bytes
        packed = torch.frombuffer(bytearray(data), dtype=torch.bfloat16)
        return packed.view(tokens, len(self._layers), -1).to(self._settings.device, torch.float32)

    def _open(self, number: int, opened: pb.OpenSession) -> None:
        opening = Opening(
            unpack_ids(opened.tokens),
            sampling_of(opened.sampling),
            opened.max_nodes,
            opened.tenant,
            opened.prompt,
            opened.proposes,
            opened.replacement,
            private=opened.private,
        )
        self._thread.post(lambda drafter: drafter.open(number, opening))

    def _close(self, stream: _Stream, sessions: Any) -> None:
        numbers = [stream.numbers.pop(session) for session in sessions if session in stream.numbers]
        for number in numbers:
            del self._owners[number]
            self._spans.close(number)
        if numbers:
            self._thread.post(lambda drafter: drafter_calls.close(drafter, numbers))

    def _drafted(self, began: float, took: float, trees: list[tuple[int, DraftTree]]) -> None:
        """Notes a round in traces and in the time line. Called in the drafter's thread after each round."""
        if trees and tracing():
            self._spans.note(took, trees)
        if (events := timeline()) is not None and (trees or took > _SHOWN_S):
            owners = [(self._owners.get(number), tree) for number, tree in trees]
            grown = [TreeSize.of(owner[1], tree.length, tree.parents) for owner, tree in owners if owner is not None]
            events.note(DraftRound(began, events.instance, took, grown))

    def _from_drafter(self, trees: list[tuple[int, DraftTree]]) -> None:
        self._loop.call_soon_threadsafe(self._send, trees)

    def _send(self, trees: list[tuple[int, DraftTree]]) -> None:
        for number, tree in trees:
            if number in self._owners:
                stream, session = self._owners[number]
                stream.trees[session] = pb.Tree(
                    session=session,
                    length=tree.length,
                    tokens=pack_ids(tree.tokens),
                    parents=pack_ids(tree.parents),
                    confidences=pack_floats(tree.confidences),
                    proposals=[
                        pb.Proposal(
                            node=node,
                            tokens=pack_ids(q.tokens),
                            probabilities=pack_floats(q.probabilities),
                            replacement=q.replacement,
                        )
                        for node, q in tree.proposals.items()
                    ],
                )
                stream.news.set()

    def _drafter_failed(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._mesh.tasks.spawn, _raise(error), "drafter")


def _note_request(events: Timeline, request: pb.DraftRequest) -> None:
    events.message("opens", True, [(item.session, len(item.tokens) // 4) for item in request.opens])
    commits = [(item.session, item.length + len(item.tokens) // 4) for item in request.commits]
    events.message("commits", True, commits)


async def _raise(error: BaseException) -> None:
    raise error
