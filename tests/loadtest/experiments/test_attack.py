"""The bars on the effect of hostile inputs, and attackers that make cases."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from outrider.loadtest.attack.verdict import Pace
from outrider.loadtest.experiments.attack import Measured, judge
from outrider.loadtest.hostile.attackers import Attackers
from outrider.loadtest.hostile.case import Case, Outcome, Target

QUIET = Pace(4, 1000, 0.01, 0.02, 0.5)
TURN = {"alone": QUIET, "attacked": QUIET, "alone again": QUIET}
CALM = Measured([TURN] * 3, 9, {}, [], {"gateway": 90 << 20},
                {"gateway": 91 << 20}, {"gateway": 1}, {"gateway": 1})  # fmt: skip


def test_a_calm_run_meets_all_bars() -> None:
    assert all(bar.met for bar in judge(CALM))


@pytest.mark.parametrize(
    "change",
    [
        {"turns": [TURN | {"attacked": Pace(4, 1000, 0.01, 0.03, 0.5)}] * 2 + [TURN]},
        {"faults": {"a case: 500": 1}},
        {"bad_streams": ["abc: lost"]},
        {"pids_after": {"gateway": 2}},
        {"bytes_after": {"gateway": 200 << 20}},
    ],
)
def test_whatever_others_notice_misses_one_bar(change: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(CALM, **change)
    assert [bar.met for bar in judge(changed)].count(False) == 1


async def test_attackers_make_every_case_and_count_wrong_answers() -> None:
    made = asyncio.Event()

    async def wrong(target: Target) -> Outcome:
        made.set()
        return Outcome("500", "internal error")

    attackers = Attackers([Case("x", "HTTP", "an input", ("400",), "", wrong)])
    async with httpx.AsyncClient() as http, attackers.running([Target("", "", None, http, "m")]):  # type: ignore[arg-type]
        await made.wait()
    assert attackers.made >= 1
    assert list(attackers.faults) == ["x: 500 'internal error', not 400"]
