"""Processes of a mesh are killed and frozen; no stream loses, repeats or changes a token.

`make chaos` runs for CHAOS_MINUTES (2), with the seed CHAOS_SEED (a new one, printed) and faults of
CHAOS_FAULTS: `single` kills one process at a time, `double` makes two faults at once, `rotation` makes all certificates
and all seeds of the broker's users anew, `frozen` freezes the broker, or it and all verifiers, `surroundings` loses
packets, breaks connections, sets a gateway's clock and fills the broker's disk where that can be done, `all` (the
default) does all of it.
Several of these, and names of single faults, are joined by commas.
CHAOS_LAYOUTS (`3x2`) has the numbers of gateways and verifiers of one mesh after another, which share the minutes.
CHAOS_SECURE=1 disturbs the mesh of `outrider up --secure`.
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

from tests.chaos.faults import KINDS, SINGLE, FaultMaker
from tests.chaos.journeys import Journeys
from tests.chaos.mesh import USUAL, ChaosMesh, Layout, chaos_mesh
from tests.chaos.questions import Question, questions
from tests.chaos.readers import Answer, by_client, by_hand
from tests.chaos.tally import UNRECORDED, Tally, show, tally

QUESTIONS = 100
MINUTES = float(os.environ.get("CHAOS_MINUTES", 2))
LAYOUTS = os.environ.get("CHAOS_LAYOUTS", "3x2").split()


class Pace(NamedTuple):
    """Clients at a time, seconds of their requests, seconds between two faults, and most faults.

    A stream hangs after ``hung_s`` seconds.
    """

    clients: int
    seconds: float
    every_s: float
    faults: float
    hung_s: float


class Clients:
    """Clients that send questions; the first answers, from an undisturbed mesh, are the expected ones."""

    def __init__(self, mesh: ChaosMesh, requests: Sequence[Question], pace: Pace) -> None:
        self._mesh, self._questions, self._clients = mesh, requests, pace.clients
        self._expected: dict[int, Answer] = {}
        self.journeys = Journeys(lambda: bool(mesh.serving()), pace.hung_s)

    async def all(self, places: Iterable[int]) -> None:
        """Sends the questions of these ``places``, one a client at a time."""
        places_left = iter(places)

        async def client() -> None:
            for place in places_left:
                await asyncio.create_task(self._ask(place))

        await asyncio.gather(*(client() for _ in range(self._clients)))

    async def _ask(self, place: int) -> None:
        question, reader = self._questions[place], by_hand if self._questions[place].raw else by_client
        journey = self.journeys.begin(place)
        try:
            answer = await reader(self._mesh.gateways, question, place, journey)
        except asyncio.CancelledError:
            self.journeys.end(journey, "left")
        except Exception as error:
            self.journeys.end(journey, "lost", f"{type(error).__name__}: {error}")
        else:
            same = answer == self._expected.setdefault(place, answer)
            self.journeys.end(journey, "identical" if same else "altered", "another answer than undisturbed")


async def _chaos(
    logs: Path,
    requests: list[Question],
    seed: int,
    faults: Sequence[str],
    pace: Pace,
    *,
    layout: Layout = USUAL,
    secure: bool = False,
) -> Tally:
    """Sends ``requests`` over and over while faults are made; no other process may die."""
    async with chaos_mesh(logs, layout, secure=secure) as mesh:
        began, clients = time.monotonic(), Clients(mesh, requests, pace)
        await clients.all(range(len(requests)))
        undisturbed, disturbed = tally(clients.journeys, [], began), time.monotonic()
        assert undisturbed.counts["identical"] == len(requests), undisturbed.problems
        print(f"\nundisturbed: {disturbed - began:.1f} s; CHAOS_SEED={seed}", flush=True)
        maker = FaultMaker(mesh, clients.journeys, seed)
        async with _beside(clients.journeys.watch()), _beside(maker.run(faults, pace.every_s, pace.faults)):
            in_time = takewhile(lambda _: time.monotonic() < disturbed + pace.seconds, count())
            await clients.all(turn % len(requests) for turn in in_time)
    total = tally(clients.journeys, maker.made, disturbed)
    show(total)
    assert maker.made
    assert total.streams >= len(requests)
    assert not mesh.deaths.unexpected
    return total


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs ``work`` during the block; raises its error at the end of the block."""
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
    assert total.counts["identical"] == total.streams, total.problems


@pytest.mark.skipif("CHAOS_MINUTES" not in os.environ, reason="takes minutes: make chaos")
@pytest.mark.timeout(60 * MINUTES / len(LAYOUTS) + 900)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_no_stream_notices_that_processes_are_killed_all_the_time(tmp_path: Path, layout: str) -> None:
    configure_logs("error", "console")
    seed, faults = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32))), os.environ.get("CHAOS_FAULTS", "all")
    known = KINDS | {name: (name,) for name in KINDS["all"]}
    assert set(faults.split(",")) <= known.keys(), f"CHAOS_FAULTS is {faults}, and not of {', '.join(known)}"
    chosen = [name for part in faults.split(",") for name in known[part]]
    requests = questions(QUESTIONS, 100, 250)
    pace = Pace(40, seconds=60 * MINUTES / len(LAYOUTS), every_s=2, faults=math.inf, hung_s=90)
    secure = os.environ.get("CHAOS_SECURE", "") not in ("", "0")
    processes = Layout(*map(int, layout.split("x")))
    total = await _chaos(tmp_path, requests, seed, chosen, pace, layout=processes, secure=secure)
    assert total.counts["identical"] + total.counts[UNRECORDED] == total.streams
    assert not total.wrong
