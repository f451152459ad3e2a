"""A verifier in the test's process; a test can hold its engine while calls run over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
from outrider.engine.decode.engine import Engine
from outrider.engine.requests.sequence import Sequence
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State
from outrider.mesh.rpc import Server, channel, close_channels
from outrider.mesh.service import Mesh
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import Telemetry
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.verifier.rpc.methods import Methods
from outrider.verifier.service import VerifierService
from outrider.verifier.settings import VerifierSettings
from outrider.wire.ids import pack_ids

from tests.waiting import eventually

LENGTH = 40
"""Tokens of an answer."""


class CountedMethods(Methods):
    """Counts the calls of `Submit` that have ended in any way."""

    ended = 0

    async def Submit(self, message: pb.SubmitRequest, context: grpc.aio.ServicerContext) -> pb.SubmitResponse:  # noqa: N802
        try:
            return await super().Submit(message, context)
        finally:
            CountedMethods.ended += 1


class Verifier(VerifierService):
    methods = CountedMethods


class Inside:
    """The running verifier, and a stub that calls it."""

    def __init__(self, service: Verifier, server: Server) -> None:
        self._before, self.service = CountedMethods.ended, service
        self.address = f"{server.host}:{server.port}"
        self.stub = VerifierStub(channel(self.address))

    @property
    def engine(self) -> Engine:
        """The engine; only for use while `hold` holds it."""
        return self.service.engine

    def sequence(self, name: str) -> Sequence:
        """The sequence of a request; only for use in the engine's thread."""
        sequence = self.engine.sequence(name)
        assert sequence is not None
        return sequence

    @contextmanager
    def hold(self, first: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Holds the engine's thread between two calls; ``first`` may end what the thread is in."""
        held, released = threading.Event(), threading.Event()

        def wait() -> None:
            held.set()
            released.wait()

        self.service.inbox.post(wait)
        first()
        held.wait(30)
        try:
            yield
        finally:
            released.set()

    async def posted(self, calls: int) -> None:
        """Returns when so many calls wait for the held thread, besides those of announcements."""
        service = self.service
        await eventually(lambda: sum(each != service.estimate_queue for each in service.inbox.pending) >= calls)

    @property
    def submissions(self) -> int:
        """Calls of `Submit` that have ended."""
        return CountedMethods.ended - self._before

    async def ended(self, calls: int) -> None:
        """Returns when so many calls of `Submit` have ended."""
        await eventually(lambda: self.submissions >= calls)


def asked(name: str, lease_ms: int = 0, tokens: int = LENGTH) -> pb.SubmitRequest:
    """A request."""
    sampling = sampling_pb2.SamplingParams(temperature=1.0, seed=17, max_tokens=tokens, ignore_eos=True)
    return pb.SubmitRequest(
        request_id=name, tenant="t", prompt=pack_ids([1, 2, 3]), sampling=sampling, lease_ms=lease_ms
    )


@asynccontextmanager
async def inside(nats_url: str, model: Path, instance: str = "inside", **settings: Any) -> AsyncIterator[Inside]:
    """A verifier of ``model`` that serves over gRPC."""
    made = VerifierSettings(nats_url=nats_url, model=str(model), drafters=[], pinned_share=0, **settings)
    tasks = Tasks()
    bus, server = Bus(tasks), Server()
    await bus.connect(nats_url, instance, wait_s=10)
    await server.start()
    service = Verifier(made)
    registry = Registry(bus, "verifier", instance, service.status, tasks)
    await service.start(Mesh(instance, made, bus, server, registry, Telemetry(None), tasks))
    await server.set_serving(True)
    registry.address = f"{server.host}:{server.port}"
    await registry.start()
    registry.set_state(State.READY)
    try:
        yield Inside(service, server)
    finally:
        registry.leave()
        await close_channels()
        await server.stop(0)
        await service.stop()
        await tasks.cancel()
        await bus.close()
