"""A process of the mesh is killed every two seconds, and no stream has a token too few, too many or another.

`make chaos` goes on for CHAOS_MINUTES (2), with dice of the seed CHAOS_SEED (a new one, printed).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from outrider.mesh.telemetry import configure_logs

from tests.chaos.mesh import Dice, Nine, nine
from tests.chaos.questions import Question, questions
from tests.chaos.readers import Answer, by_client, by_hand

EVERY_S = 2.0
AT_A_TIME = 25
STREAMS = 100
MINUTES = float(os.environ.get("CHAOS_MINUTES", 2))


async def _ask(mesh: Nine, number: int, question: Question) -> Answer:
    return await (by_hand if question.raw else by_client)(mesh.urls, question, number)


async def _all(mesh: Nine, asked: list[Question], at_a_time: int) -> list[Answer | Exception]:
    """The answers to all, or what went wrong with them."""
    places, answers = iter(range(len(asked))), dict[int, Answer | Exception]()

    async def client() -> None:
        for number in places:
            try:
                answers[number] = await _ask(mesh, number, asked[number])
            except Exception as error:
                print(f"stream {number}: {type(error).__name__}: {error}", flush=True)
                answers[number] = error

    await asyncio.gather(*(client() for _ in range(at_a_time)))
    return [answers[number] for number in range(len(asked))]


async def _rounds(mesh: Nine, asked: list[Question], wanted: list[Answer], seconds: float) -> Counter[str]:
    """Asks everything again and again for so long; what came of it."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until:
        for answer, right in zip(await _all(mesh, asked, AT_A_TIME), wanted, strict=True):
            counts["streams"] += 1
            counts["identical"] += answer == right
            counts["returns"] += answer.returns if isinstance(answer, Answer) else 0
            counts["failed"] += not isinstance(answer, Answer)
    return counts


async def _chaos(logs: Path, asked: list[Question], seed: int, every_s: float, seconds: float) -> None:
    async with nine(logs) as mesh:
        began = time.monotonic()
        wanted = await _all(mesh, asked, AT_A_TIME)
        assert all(isinstance(each, Answer) for each in wanted)
        print(f"\nundisturbed: {time.monotonic() - began:.1f} s; CHAOS_SEED={seed}", flush=True)
        dice = Dice(mesh, seed)
        rolling = asyncio.create_task(dice.roll(every_s))
        counts = await _rounds(mesh, asked, wanted, seconds)
        rolling.cancel()
    print(f"{dict(counts)}; killed: {dict(Counter(dice.killed))}", flush=True)
    assert dice.killed
    assert counts["identical"] == counts["streams"]


async def test_no_stream_notices_a_few_deaths(tmp_path: Path) -> None:
    await _chaos(tmp_path, questions(12, 60, 120), 1, every_s=0.5, seconds=2)


@pytest.mark.skipif("CHAOS_MINUTES" not in os.environ, reason="takes minutes: make chaos")
@pytest.mark.timeout(60 * MINUTES + 600)
async def test_no_stream_notices_that_processes_are_killed_all_the_time(tmp_path: Path) -> None:
    configure_logs("error", "console")
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32)))
    await _chaos(tmp_path, questions(STREAMS, 150, 400), seed, EVERY_S, 60 * MINUTES)
