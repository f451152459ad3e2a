"""A verifier in the test's own process, whose engine a test can hold while calls come and go over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State
from outrider.mesh.rpc import Server, channel, close_channels
from outrider.mesh.service import Mesh
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import Telemetry
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.engine_thread import EngineThread
from outrider.verifier.decode.outcome import Queued
from outrider.verifier.requests.sequence import Request
from outrider.verifier.rpc.frame_log import FrameLog
from outrider.verifier.service import VerifierService
from outrider.verifier.settings import VerifierSettings
from outrider.verifier.target import Parts
from outrider.wire.ids import pack_ids

from tests.waiting import eventually

T = TypeVar("T")
LENGTH = 40
"""Tokens of an answer."""


class InsideEngine(Engine):
    """An engine whose requests a test may hold up as they are taken.

    Attributes:
        taking: called with each request before it is taken.
        taken: called when it was taken.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.taking: Callable[[Request], object] = lambda request: None
        self.taken: Callable[[], object] = lambda: None

    def submit(self, request: Request) -> Queued:
        self.taking(request)
        place = super().submit(request)
        self.taken()
        return place


class InsideThread(EngineThread):
    """A thread that tells how many calls wait for it.

    Attributes:
        engine: to be touched in this thread, or where the thread is held.
    """

    def __init__(self, engine: InsideEngine, *given: Any) -> None:
        super().__init__(engine, *given)
        self.engine = engine
        self._called = self._taken = 0

    @property
    def waiting(self) -> int:
        """Calls that have not begun."""
        return self._called - self._taken

    def call(self, action: Callable[[], T]) -> Future[T]:
        future = super().call(action)
        self._called += 1
        super().post(self._take)
        return future

    def _take(self) -> None:
        self._taken += 1


class Verifier(VerifierService):
    """Counts the calls of `Submit` that have ended, whichever way."""

    ended = 0

    async def Submit(self, message: pb.SubmitRequest, context: grpc.aio.ServicerContext) -> pb.SubmitResponse:  # noqa: N802
        try:
            return await super().Submit(message, context)
        finally:
            self.ended += 1


class Inside:
    """The running verifier, its parts, and a stub that calls it."""

    def __init__(self, service: Verifier, thread: InsideThread, log: FrameLog, server: Server) -> None:
        self.service, self.thread, self.log = service, thread, log
        self.lanes = f"{server.host}:{server.lane_port}"
        self.address = f"{server.host}:{server.port}"
        self.stub = VerifierStub(channel(self.address))
        self.numbers: dict[str, int] = {}

    @property
    def engine(self) -> InsideEngine:
        """The engine, to be touched where `hold` holds it."""
        return self.thread.engine

    def park(self, name: str) -> None:
        """Has a request that was submitted before stay with the engine and not move."""

        def park() -> None:
            [sequence] = [each for each in self.engine.scheduler.waiting if each.request.id == name]
            self.numbers[name] = sequence.number
            self.engine.scheduler.park(sequence)

        self.thread.post(park)

    def resume(self, name: str) -> None:
        """Ends `park`."""
        self.thread.post(lambda: self.engine.resume(self.numbers[name]))

    @contextmanager
    def hold(self, first: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Holds the engine's thread between two calls; ``first`` may end what the thread is in."""
        held, released = threading.Event(), threading.Event()

        def wait() -> None:
            held.set()
            released.wait()

        self.thread.post(wait)
        first()
        held.wait(30)
        try:
            yield
        finally:
            released.set()

    async def posted(self, calls: int) -> None:
        """Returns when so many calls wait for a thread that is held."""
        await eventually(lambda: self.thread.waiting >= calls)

    async def ended(self, calls: int) -> None:
        """Returns when so many calls of `Submit` have ended."""
        await eventually(lambda: self.service.ended >= calls)


def asked(name: str, lease_ms: int = 0, tokens: int = LENGTH) -> pb.SubmitRequest:
    """A request."""
    sampling = sampling_pb2.SamplingParams(temperature=1.0, seed=17, max_tokens=tokens, ignore_eos=True)
    return pb.SubmitRequest(
        request_id=name, tenant="t", prompt=pack_ids([1, 2, 3]), sampling=sampling, lease_ms=lease_ms
    )


@asynccontextmanager
async def inside(nats_url: str, model: Path, instance: str = "inside", **settings: Any) -> AsyncIterator[Inside]:
    """A verifier of ``model`` that serves over gRPC and lanes."""
    made = VerifierSettings(nats_url=nats_url, model=str(model), drafters=[], pinned_share=0, **settings)
    tasks = Tasks()
    bus, server = Bus(tasks), Server()
    await bus.connect(nats_url, instance, wait_s=10)
    await server.start()
    log, threads = FrameLog(), list[InsideThread]()

    class Watched(InsideThread):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            threads.append(self)

    class Service(Verifier):
        parts = Parts(engine=InsideEngine, thread=Watched, log=lambda: log)

    service = Service(made)
    registry = Registry(bus, "verifier", instance, service.status, tasks)
    await service.start(Mesh(instance, made, bus, server, registry, Telemetry(None), tasks))
    await server.set_serving(True)
    registry.address = f"{server.host}:{server.port}"
    await registry.start()
    registry.set_state(State.READY)
    try:
        yield Inside(service, threads[0], log, server)
    finally:
        registry.leave()
        await close_channels()
        await server.stop(0)
        await service.stop()
        await tasks.cancel()
        await bus.close()
