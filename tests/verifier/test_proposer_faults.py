"""A proposer behind a slow link, frozen, thawed, killed and started anew while streams run: no answer changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import httpx
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import sampling_pb2, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids

from tests.processes import ALWAYS, ServiceProcess, running
from tests.relay import Relay
from tests.toy_model import save_toy
from tests.waiting import eventually

STREAMS = 3
Stub = verifier_pb2_grpc.VerifierStub


class Mesh:
    """A verifier, and a proposer that is known by the address of a relay."""

    def __init__(self, proposer: ServiceProcess, own_port: int, relayed_port: int, probes: int) -> None:
        self.proposer, self.own_port, self.relayed_port, self._probes = proposer, own_port, relayed_port, probes

    def threads(self) -> int:
        """Number of threads that run the verifier's steps."""
        text = httpx.get(f"http://127.0.0.1:{self._probes}/metrics").text
        return int(float(re.search(r"^outrider_verifier_threads (\S+)$", text, re.MULTILINE)[1]))


@pytest.fixture(scope="module")
def mesh(shared_nats: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    logs = tmp_path_factory.mktemp("logs")
    common = {"nats_url": shared_nats, "model": save_toy(logs / "toy", 50)}
    own, relayed = hold_port(), hold_port()
    proposer = {"port": own, "advertise": f"127.0.0.1:{relayed}", "instance": "far", **common}
    with ExitStack() as stack:
        verifier = {"instance": "steady", "page_size": 8, "drafters": "[]", "program": ALWAYS, **common}
        verifier |= {"threads": 3, "threads_beside": 2, "metrics_port": (probes := hold_port())}
        stack.enter_context(running("verifier", logs / "verifier.log", **verifier))
        yield Mesh(stack.enter_context(running("proposer", logs / "proposer.log", **proposer)), own, relayed, probes)


@pytest.fixture
async def stub(bus: Bus, mesh: Mesh) -> AsyncIterator[Stub]:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("verifier", lambda all_: any(m.instance == "steady" for m in all_), 240)
    yield Stub(channel(next(member.address for member in members if member.instance == "steady")))
    registry.leave()
    await close_channels()


@pytest.fixture
async def relay(mesh: Mesh) -> AsyncIterator[Relay]:
    relay = Relay(mesh.own_port, 0.001)
    await relay.start(mesh.relayed_port)
    yield relay
    await relay.stop()


class Streams:
    """Clients that ask for the same answers again and again."""

    def __init__(self, stub: Stub) -> None:
        self._stub, self.answers, self.guessed = stub, 0, 0
        self._asked = 0

    async def ask(self, seed: int, off: bool = False) -> list[int]:
        """The tokens of the ``seed``-th answer, as they are streamed; greedy or sampled."""
        self._asked += 1
        name = f"faults-{id(self):x}-{self._asked}"
        await self._stub.Submit(
            pb.SubmitRequest(
                request_id=name,
                tenant="t",
                prompt=pack_ids([1, 2, 3 + seed]),
                sampling=sampling_pb2.SamplingParams(temperature=float(seed % 2), seed=seed, max_tokens=150),
                speculation=sampling_pb2.Speculation(off=off),
            )
        )
        tokens: list[int] = []
        async for response in self._stub.Follow(pb.FollowRequest(request_id=name)):
            frame = decode_frame(response.frame)
            tokens += frame.tokens
            self.guessed += sum(by == "model" for by in frame.guessed_by)
        return tokens

    async def repeat(self, seed: int, wanted: list[int]) -> None:
        """Asks until cancelled; fails when an answer changes."""
        while True:
            assert await self.ask(seed) == wanted
            self.answers += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Several clients, until the block is left."""
        wanted = [await self.ask(seed, off=True) for seed in range(STREAMS)]
        tasks = [asyncio.create_task(self.repeat(seed, tokens)) for seed, tokens in enumerate(wanted)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * STREAMS

    async def goes_on(self) -> None:
        """Returns after several more answers."""
        goal = self.answers + 2 * STREAMS
        await eventually(lambda: self.answers >= goal)

    async def is_helped(self) -> None:
        """Returns when a guess of the proposer has been accepted."""
        before = self.guessed
        await eventually(lambda: self.guessed > before)


async def test_guesses_that_come_over_a_slow_link_change_nothing(stub: Stub, relay: Relay) -> None:
    streams = Streams(stub)
    async with streams.running():
        await streams.is_helped()
        await streams.goes_on()
    assert relay.carried > 0


async def test_no_stream_notices_a_proposer_that_freezes_thaws_dies_and_comes_back(
    stub: Stub, relay: Relay, mesh: Mesh
) -> None:
    streams = Streams(stub)
    async with streams.running():
        await streams.is_helped()
        mesh.proposer.freeze()
        await streams.goes_on()
        mesh.proposer.thaw()
        await streams.is_helped()
        await eventually(lambda: mesh.threads() == 2)
        mesh.proposer.kill()
        await eventually(lambda: mesh.threads() == 3)
        await streams.goes_on()
        mesh.proposer.start()
        await streams.is_helped()
        await eventually(lambda: mesh.threads() == 2)
        await streams.goes_on()
    await eventually(lambda: mesh.threads() == 3)
