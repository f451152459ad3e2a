"""Streams whose verifier lost the request, or whose engine hangs: another verifier goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing import Ask, VerifierSelection
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.token_stream import TokenStream
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry import Member, Registry
from outrider.mesh.tasks import Tasks
from outrider.v1.sampling_pb2 import Speculation
from outrider.wire.frames import Frame
from outrider.wire.sampling import SamplingParams

from tests.toy_model import save_toy
from tests.verifier.inside import Inside, inside
from tests.waiting import eventually

LENGTH, PATIENCE_S = 60, 60.0


class RecordingSelection(VerifierSelection):
    """A selection that records the requests that it ranks and those that a verifier took."""

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self.ordered: list[Ask] = []
        self.taken: list[Ask] = []

    def order(
        self, ask: Ask, members: Sequence[Member], load: Callable[[Member], int], avoid: Collection[str] = ()
    ) -> list[Member]:
        self.ordered.append(ask)
        return super().order(ask, members, load, avoid)

    def sent(self, ask: Ask, instance: str) -> None:
        self.taken.append(ask)
        super().sent(ask, instance)


class Gateway:
    """The part of a gateway that reads streams."""

    def __init__(self, bus: Bus, registry: Registry, tasks: Tasks, settings: GatewaySettings) -> None:
        self.bus, self.registry, self.settings = bus, registry, settings
        self.reader = FrameReader(bus, "reader")
        self.selection, refused = RecordingSelection(settings), RefusedJobs(bus)
        self.verifiers = Verifiers(registry, tasks, settings, self.selection, refused, lambda instance: None)

    async def member(self, instance: str) -> Member:
        found = await self.registry.wait_for("verifier", lambda all_: any(m.instance == instance for m in all_), 30)
        return next(member for member in found if member.instance == instance)

    def stream(self, name: str, member: Member) -> TokenStream:
        served = ServedModel(member.status["model"], member.status["vocabulary"], member.status["context_length"])
        sampling = SamplingParams(seed=7, ignore_eos=True, max_tokens=LENGTH).to_proto()
        return TokenStream(
            Job(name, served, [1, 2, 3], sampling, Speculation(off=True), Caller()),
            self.verifiers,
            self.reader,
            self.settings,
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", 50)


@asynccontextmanager
async def gateway(
    nats_url: str, silence_s: float = 0.1, heartbeat_s: float = 0.5, submit_s: float = 5.0, place_s: float = 15.0
) -> AsyncIterator[Gateway]:
    tasks = Tasks()
    bus = Bus(tasks)
    await bus.connect(nats_url, "gateway", wait_s=10)
    registry = Registry(bus, "gateway", "reader", tasks=tasks)
    await registry.start()
    times = {"silence_s": silence_s, "heartbeat_s": heartbeat_s, "submit_s": submit_s, "place_s": place_s}
    reading = Gateway(bus, registry, tasks, GatewaySettings(lease_s=60, **times))
    await reading.reader.open()
    yield reading
    registry.leave()
    await tasks.cancel()
    await bus.close()


async def read(stream: TokenStream) -> list[int]:
    """All tokens of the stream; closes it."""
    tokens: list[int] = []
    try:
        async with asyncio.timeout(PATIENCE_S), aclosing(stream.frames()) as batches:
            async for frames in batches:
                tokens += [token for frame in frames for token in frame.tokens]
    finally:
        await stream.close()
    return tokens


async def alone(gateway: Gateway, member: Member) -> list[int]:
    """The tokens of an undisturbed stream."""
    stream = gateway.stream("alone", member)
    await stream.open()
    return await read(stream)


async def nothing_logged(job: Job) -> Sequence[Frame]:
    return []


async def test_a_stream_that_is_taken_up_at_a_verifier_without_the_request_is_submitted_again(
    shared_nats: str, model: Path
) -> None:
    async with (
        inside(shared_nats, model, "ghostly") as verifier,
        gateway(shared_nats) as reader,
    ):
        member = await reader.member("ghostly")
        whole = await alone(reader, member)
        verifier.service.log.open("haunted")
        stream = reader.stream("haunted", member)
        await stream.attach(nothing_logged, member)
        assert await read(stream) == whole


async def test_a_stream_leaves_a_verifier_whose_engine_gives_no_sign_of_life(shared_nats: str, model: Path) -> None:
    async with (
        inside(shared_nats, model, "stuck") as stuck,
        gateway(shared_nats, submit_s=1.0) as reader,
    ):
        member = await reader.member("stuck")
        whole = await alone(reader, member)
        stream = reader.stream("left", member)
        with stuck.hold():
            opening = asyncio.create_task(stream.open())
            await stuck.posted(1)
            stuck.service.inbox.post(lambda: park(stuck, "left"))
        await opening
        async with inside(shared_nats, model, "well"):
            await reader.member("well")
            with stuck.hold():
                assert await read(stream) == whole
                assert stream.verifier == "well"


async def test_a_stream_whose_broker_is_lost_while_it_moves_keeps_no_source_that_has_ended(
    shared_nats: str, model: Path
) -> None:
    async with (
        inside(shared_nats, model, "silent") as silent,
        gateway(shared_nats, silence_s=60, submit_s=30.0) as reader,
    ):
        member = await reader.member("silent")
        whole = await alone(reader, member)
        stream = reader.stream("crossed", member)
        with silent.hold():
            opening = asyncio.create_task(stream.open())
            await silent.posted(1)
            silent.service.inbox.post(lambda: park(silent, "crossed"))
        await opening
        async with inside(shared_nats, model, "next") as following:
            await reader.member("next")
            with silent.hold():
                reading = asyncio.create_task(read(stream))
                stream.follow("disconnected")
                with following.hold():
                    await following.posted(1)
                    stream.follow("disconnected")
                    await asyncio.sleep(2 * reader.settings.heartbeat_s)  # a verifier that is followed here is lost
                    following.service.inbox.post(lambda: park(following, "crossed"))
                await eventually(lambda: stream.verifier == "next")
                await eventually(lambda: not stream.following)
                following.service.inbox.post(lambda: following.engine.scheduler.resume(following.sequence("crossed")))
                assert await reading == whole


async def test_a_verifier_that_has_the_request_already_is_followed_at_once(shared_nats: str, model: Path) -> None:
    async with inside(shared_nats, model, "earlier") as verifier, gateway(shared_nats, silence_s=60) as reader:
        member = await reader.member("earlier")
        whole = await alone(reader, member)
        first, second = (reader.stream("twice", member) for _ in range(2))
        with verifier.hold():
            opening = asyncio.create_task(first.open())
            await verifier.posted(1)
            verifier.service.inbox.post(lambda: park(verifier, "twice"))
        await opening
        await second.open()
        await eventually(lambda: second.following)
        verifier.service.inbox.post(lambda: verifier.engine.scheduler.resume(verifier.sequence("twice")))
        assert await read(second) == whole
        await first.close(cancel=False)


async def test_a_request_waits_for_a_verifier_that_answers_again_after_one_submission_was_given_up(
    shared_nats: str, model: Path
) -> None:
    usual = GatewaySettings()
    async with (
        inside(shared_nats, model, "pauses") as verifier,
        gateway(shared_nats, submit_s=usual.submit_s) as reader,
    ):
        assert reader.settings.place_s == usual.place_s
        member = await reader.member("pauses")
        whole = await alone(reader, member)
        before = verifier.submissions
        stream = reader.stream("paused", member)
        with verifier.hold():
            opening = asyncio.create_task(stream.open())
            await verifier.ended(before + 1)
            await verifier.posted(2)
        await opening
        assert await read(stream) == whole


async def test_a_request_that_nobody_takes_in_time_is_told_that_no_verifier_answers(
    shared_nats: str, model: Path
) -> None:
    async with (
        inside(shared_nats, model, "absent") as verifier,
        gateway(shared_nats, submit_s=0.1, place_s=0) as reader,
    ):
        stream = reader.stream("refused", await reader.member("absent"))
        with verifier.hold():
            with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s") as told:
                await stream.open()
            assert told.value.retry_after
            await stream.close()


async def test_a_router_recognizes_the_request_that_a_verifier_took(shared_nats: str, model: Path) -> None:
    async with inside(shared_nats, model, "ranked"), gateway(shared_nats) as reader:
        await alone(reader, await reader.member("ranked"))
        (ordered,), (taken,) = reader.selection.ordered, reader.selection.taken
        assert taken is ordered


def park(verifier: Inside, name: str) -> None:
    """Halts a request inside the engine."""
    verifier.engine.scheduler.park(verifier.sequence(name))
