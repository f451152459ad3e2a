"""A stream among any failures, in any order: it reads or it ends, and holds no source that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from itertools import cycle
from math import inf
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.deadlines import Deadlines
from outrider.gateway.errors import DeadlinePassed, FatalRequest
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.phases import TRANSITIONS, Event, Phase
from outrider.gateway.stream.token_stream import TokenStream
from outrider.v1.sampling_pb2 import Speculation
from outrider.wire.frames import Frame
from outrider.wire.sampling import SamplingParams

from tests import virtual_time
from tests.gateway.stream.world import LENGTH, Generation, World

DEATHS = 3
SETTINGS = GatewaySettings(
    silence_s=1.0, heartbeat_s=1.5, place_s=60.0, resume_s=60.0, submit_s=2.0, lease_s=600.0, most_deaths=DEATHS
)
PATIENCE_S, SETTLED_S = 200.0, 10.0
"""Virtual time in which any stream ends, and in which all that is left of it ends."""

_HERE, _ELSEWHERE = (
    ["kill", "freeze", "thaw", "drain", "give_up", "forget", "break_off"],
    ["add", "lose", "find", "drop"],
)


class Failure(NamedTuple):
    """What fails ``after`` seconds from the failure before.

    ``which`` is the number of the verifier, or -1 for the one with the stream; the broker drops ``10 ** (1 + which)``
    frames.
    """

    after: float
    what: str
    which: int = -1


PAUSES = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3, 1.1, 1.6, 2.6])
FAILURES = st.builds(Failure, PAUSES, st.sampled_from([*_HERE, *_ELSEWHERE]), st.integers(-1, 2))
DELAYS = st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.7, 1.9]), min_size=1, max_size=5)


def test_only_a_verifier_that_has_the_job_is_followed_and_an_ended_stream_stays_ended() -> None:
    assert {before for (before, _), after in TRANSITIONS.items() if after is Phase.BOTH} == {Phase.BROKER}
    assert {before for (before, _), after in TRANSITIONS.items() if after is Phase.MOVING} == {Phase.LOST}
    assert {before for before, event in TRANSITIONS if event is Event.END} == set(Phase)
    assert {after for (before, _), after in TRANSITIONS.items() if before is Phase.ENDED} == {Phase.ENDED}


async def _fail(world: World, stream: TokenStream, failures: Sequence[Failure]) -> None:
    """Lets everything fail that shall, and then makes the mesh whole again."""
    for failure in failures:
        await asyncio.sleep(failure.after)
        if failure.what in _HERE:
            chosen = [each for each in world.all if each.member.instance == stream.verifier]
            which = world.all[failure.which % len(world.all)] if failure.which >= 0 or not chosen else chosen[0]
            getattr(world, failure.what)(which)
        elif failure.what == "drop":
            world.to_drop = 10 ** (1 + failure.which)
        else:
            {"add": world.add, "lose": world.lose_broker, "find": world.find_broker}[failure.what]()
    world.find_broker()
    for verifier in world.all:
        world.thaw(verifier)
    world.add()


async def _open(world: World, stream: TokenStream, start: str) -> None:
    """Begins the answer, or takes one up that was begun before, at its verifier or at none."""
    if start == "new":
        await stream.open()
        return
    holder = world.all[0]
    holder.generation = Generation(0)
    await asyncio.sleep(0.35)
    logged = list(holder.generation.frames) if holder.generation else []
    if start == "gap":
        del logged[:1]

    async def log(job: Job) -> Sequence[Frame]:
        await asyncio.sleep(0.1)
        return logged

    await stream.attach(log, None if start == "nowhere" else holder.member)


class Reading:
    """The reader of one stream, who takes ``slow`` seconds for each batch of frames; ``waits`` while there is none."""

    def __init__(self, world: World, start: str, slow: float) -> None:
        mesh: Any = world
        self.world, self.stream = world, TokenStream(world.job, mesh, mesh, SETTINGS)
        self._start, self._slow = start, slow
        self._tokens: list[int] = []
        self.waits = False
        world.follow_stream = self._follow

    def check(self) -> None:
        """Whether the stream holds a follower if and only if it says so, of the verifier that has the job.

        A follower that has ended is held only until the reader comes to read that.
        """
        followed, following = self.world.followed, [self.stream.member] if self.stream.following else []
        assert followed == following or (not followed and not self.waits)

    async def outcome(self) -> None:
        """Reads to the end, which must be a right one."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await _open(self.world, self.stream, self._start)
                await self._read()
        except DeadlinePassed:
            assert asyncio.get_running_loop().time() >= self.world.job.deadlines.end_by
        except FatalRequest:
            assert self.world.deaths >= DEATHS
        else:
            assert self._tokens == list(range(LENGTH))

    async def _read(self) -> None:
        async with aclosing(self.stream.frames()) as batches:
            self.waits = True
            async for frames in batches:
                self.waits = False
                for frame in frames:
                    self._take(frame)
                await asyncio.sleep(self._slow)
                self.waits = True

    def _take(self, frame: Frame) -> None:
        self._tokens += frame.tokens

    def _follow(self, reason: str, instance: str | None) -> None:
        if instance in (None, self.stream.verifier):
            self.stream.follow(reason)


def _job(end_by: float = inf) -> Job:
    sampling, served = SamplingParams(seed=7, max_tokens=LENGTH).to_proto(), ServedModel("m", "v", 999)
    return Job("r", served, [1, 2], sampling, Speculation(), Caller(), deadlines=Deadlines(end_by=end_by))


def test_a_stream_follows_a_verifier_that_sends_gateways_no_batches_of_frames() -> None:
    """Verifiers of earlier versions do not."""

    async def main() -> None:
        world = World(_job(), 1, cycle([0.01]))
        (verifier,) = world.all
        verifier.member = msgspec.structs.replace(verifier.member, status={"heartbeats": True})
        world.to_drop = LENGTH
        mesh: Any = world
        stream = TokenStream(world.job, mesh, mesh, SETTINGS)
        await stream.open()
        assert stream.following
        assert [token async for frames in stream.frames() for each in frames for token in each.tokens] == [
            *range(LENGTH)
        ]
        await stream.close()

    virtual_time.run(main(), list)


@settings(max_examples=1000)
@given(
    failures=st.lists(FAILURES, max_size=8),
    delays=DELAYS,
    start=st.sampled_from(["new", "new", "resumed", "nowhere", "gap"]),
    leaves=st.sampled_from([None, None, None, 0.05, 0.4, 2.0, 4.0]),
    end_by=st.sampled_from([inf, inf, 1.0, 5.0]),
    slow=st.sampled_from([0.0, 0.0, 0.4, 3.0]),
)
def test_a_stream_reads_or_ends_whatever_fails_and_holds_no_source_that_has_ended(
    failures: list[Failure],
    delays: list[float],
    start: str,
    leaves: float | None,
    end_by: float,
    slow: float,
) -> None:
    readers: list[Reading] = []

    async def main() -> None:
        world = World(_job(end_by), 2, cycle(delays))
        readers.append(reader := Reading(world, start, slow))
        world.spawn(_fail(world, reader.stream, failures))
        try:
            async with asyncio.timeout(leaves):
                await reader.outcome()
        except TimeoutError:
            assert leaves is not None, "the stream neither reads nor ends"
        await reader.stream.close()
        await asyncio.sleep(SETTLED_S)
        assert +world.counts == {}
        assert not world.foreign()

    virtual_time.run(main(), lambda: [reader.check() for reader in readers])
