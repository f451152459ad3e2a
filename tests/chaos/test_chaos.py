"""Processes of a mesh are killed, stopped and kept away, and no stream has a token too few, too many or another.

`make chaos` goes on for CHAOS_MINUTES (2), with dice of the seed CHAOS_SEED (a new one, printed) and faults of
CHAOS_FAULTS: `single` kills one process at a time, `double` makes two faults at once, `all` (the default) does both.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

import pytest
from outrider.mesh.telemetry import configure_logs

from tests.chaos.faults import KINDS, SINGLE, Dice
from tests.chaos.journeys import Journeys
from tests.chaos.mesh import Nine, nine
from tests.chaos.questions import Question, questions
from tests.chaos.readers import Answer, by_client, by_hand
from tests.chaos.tally import Tally, show, tally

QUESTIONS = 100
MINUTES = float(os.environ.get("CHAOS_MINUTES", 2))


class Pace(NamedTuple):
    """Clients at a time, seconds in which they ask, seconds between two faults, and most faults.

    A stream hangs after ``hung_s`` seconds.
    """

    clients: int
    seconds: float
    every_s: float
    faults: float
    hung_s: float


class Asking:
    """Asks questions, whose first answers are those of an undisturbed mesh."""

    def __init__(self, mesh: Nine, asked: Sequence[Question], pace: Pace) -> None:
        self._mesh, self._asked, self._clients = mesh, asked, pace.clients
        self._wanted: dict[int, Answer] = {}
        self.journeys = Journeys(lambda: bool(mesh.serving()), pace.hung_s)

    async def all(self, places: Iterable[int]) -> None:
        """Asks the questions of these places, so many at a time as there are clients."""
        left = iter(places)

        async def client() -> None:
            for place in left:
                await asyncio.create_task(self._ask(place))

        await asyncio.gather(*(client() for _ in range(self._clients)))

    async def _ask(self, place: int) -> None:
        question, reader = self._asked[place], by_hand if self._asked[place].raw else by_client
        journey = self.journeys.begin(place)
        try:
            answer = await reader(self._mesh.urls, question, place, journey)
        except asyncio.CancelledError:
            self.journeys.end(journey, "left")
        except Exception as error:
            self.journeys.end(journey, "lost", f"{type(error).__name__}: {error}")
        else:
            same = answer == self._wanted.setdefault(place, answer)
            self.journeys.end(journey, "identical" if same else "altered", "another answer than undisturbed")


async def _chaos(logs: Path, asked: list[Question], seed: int, faults: Sequence[str], pace: Pace) -> Tally:
    """Asks ``asked`` over and over while the dice make faults; nobody may die that they did not kill."""
    async with nine(logs) as mesh:
        began, asking = time.monotonic(), Asking(mesh, asked, pace)
        await asking.all(range(len(asked)))
        undisturbed, disturbed = tally(asking.journeys, [], began), time.monotonic()
        assert undisturbed.counts["identical"] == len(asked), undisturbed.told
        print(f"\nundisturbed: {disturbed - began:.1f} s; CHAOS_SEED={seed}", flush=True)
        dice = Dice(mesh, asking.journeys, seed)
        async with _beside(asking.journeys.watch()), _beside(dice.roll(faults, pace.every_s, pace.faults)):
            in_time = takewhile(lambda _: time.monotonic() < disturbed + pace.seconds, count())
            await asking.all(turn % len(asked) for turn in in_time)
    total = tally(asking.journeys, dice.made, disturbed)
    show(total)
    assert dice.made
    assert total.streams >= len(asked)
    assert not mesh.deaths.unasked
    return total


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Does ``work`` until the block is left; what it raised is raised then."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.timeout(600)
async def test_no_stream_notices_a_few_deaths(tmp_path: Path) -> None:
    pace = Pace(12, seconds=2, every_s=0.5, faults=8, hung_s=90)
    total = await _chaos(tmp_path, questions(12, 60, 120), 1, SINGLE, pace)
    assert total.counts["identical"] == total.streams, total.told


@pytest.mark.skipif("CHAOS_MINUTES" not in os.environ, reason="takes minutes: make chaos")
@pytest.mark.timeout(60 * MINUTES + 900)
async def test_no_stream_notices_that_processes_are_killed_all_the_time(tmp_path: Path) -> None:
    configure_logs("error", "console")
    seed, faults = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32))), os.environ.get("CHAOS_FAULTS", "all")
    assert faults in KINDS, f"CHAOS_FAULTS is {faults}, and not one of {', '.join(KINDS)}"
    asked = questions(QUESTIONS, 100, 250)
    pace = Pace(40, seconds=60 * MINUTES, every_s=2, faults=math.inf, hung_s=90)
    total = await _chaos(tmp_path, asked, seed, KINDS[faults], pace)
    assert total.counts["identical"] == total.streams
    assert not total.wrong
