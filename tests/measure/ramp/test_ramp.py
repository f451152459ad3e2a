from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from outrider.measure.load.client import Reply, RequestError
from outrider.measure.ramp import comparison, result, search
from outrider.measure.ramp.figures import DRAWS, Slo, figures
from outrider.measure.ramp.level import UNFINISHED, Level, Request, Run, Timing
from outrider.measure.ramp.result import FORMAT, Result, ResultError
from outrider.measure.ramp.schedules import Arrival, ScheduleError, schedule

SLO = Slo(first_s=1.0, token_s=0.1)


def _reply(tokens: int) -> Reply:
    return Reply([time.perf_counter()], 1, 0, tokens, 0, 0, 1)


async def _level(send: Any, rate: float = 40, patience_s: float = 5.0) -> Level:
    run = Run(rate, 0, Timing(warm_up_s=0.1, seconds=1.0, patience_s=patience_s), send)
    return await run.level(Arrival(number / rate) for number in itertools.count())


def _made(rate: float, tokens: float, first_s: float, seed: int, kept: bool = True) -> Level:
    """A level of a minute with noise of a tenth."""
    draw = random.Random(seed)
    due = [second + part / rate for second in range(60) for part in range(int(rate))]
    requests = [Request(at, time := first_s * draw.uniform(0.9, 1.1), time + 1.0, 21) for at in due]
    ends = [int(rate) if kept else 0] * 60
    return Level(rate, 60, seed, requests, [tokens * draw.uniform(0.9, 1.1) for _ in range(60)], ends)


def _result(levels: list[Level]) -> Result:
    return Result(FORMAT, {}, {}, SLO, levels)


@pytest.mark.parametrize("name", ["poisson", "bursts:4"])
def test_arrivals_come_at_the_rate_and_are_fixed_by_the_seed(name: str) -> None:
    first, again, other = ([a.at for a in itertools.islice(schedule(name)(10, seed), 4000)] for seed in (1, 1, 2))
    assert first == again != other
    assert 4000 / first[-1] == pytest.approx(10, rel=0.1)
    assert len(set(first)) == 4000 // (4 if name.startswith("bursts") else 1)


def test_a_trace_is_replayed_at_the_rate_with_its_lengths_and_shared_beginnings(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 3000, "input_length": 600, "output_length": 6, "hash_ids": [1, 3]},
    ]
    (tmp_path / "trace.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    arrivals = list(itertools.islice(schedule(f"trace:{tmp_path}/trace.jsonl")(0.5, 0), 4))
    assert [arrival.at for arrival in arrivals] == [0, 2, 4, 6]
    prompts = [arrival.prompt or [] for arrival in arrivals]
    assert [len(prompt) for prompt in prompts] == [700, 600, 700, 600]
    assert [arrival.max_tokens for arrival in arrivals] == [5, 6, 5, 6]
    assert prompts[0][:512] == prompts[1][:512] != prompts[2][:512]
    assert prompts[0][512:600] != prompts[1][512:]


@pytest.mark.parametrize("text", ["", "bursts:0", "bursts", "trace:", "trace:/nowhere", "poisson:1"])
def test_a_schedule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        schedule(text)


async def test_requests_are_sent_when_due_and_measured_after_the_warm_up() -> None:
    sent = 0

    async def send(arrival: Arrival) -> Reply:
        nonlocal sent
        sent += 1
        return _reply(3)

    level = await _level(send)
    assert len(level.requests) == 40
    assert sent >= 44
    assert sum(level.ends) == pytest.approx(40, abs=3)
    assert sum(level.tokens) == pytest.approx(3 * sum(level.ends))
    assert not level.errors
    assert level.keeps_up


async def test_a_load_goes_on_while_answers_are_missing_and_tells_of_them() -> None:
    started = 0

    async def send(arrival: Arrival) -> Reply:
        nonlocal started
        started += 1
        if started % 2:
            raise RequestError("503")
        await asyncio.sleep(60)
        raise AssertionError

    level = await _level(send, patience_s=0.2)
    assert level.errors == {"503": 20, UNFINISHED: 20}
    assert not level.keeps_up
    assert started >= 48


async def test_rates_rise_until_the_mesh_does_not_keep_up_and_close_in_on_that() -> None:
    async def run(rate: float, repeat: int) -> Level:
        return _made(rate, 100, 0.5, repeat, kept=rate < 11)

    levels = await search.rising(1, 2, run)
    kept, missed = search.saturation(levels)
    assert kept <= 11 <= missed
    assert missed / kept < 1.2
    assert {level.repeat for level in levels if level.rate == kept} == {0, 1}
    assert search.saturation([_made(4, 1, 1, 0)]) == (4, math.inf)


def test_figures_have_intervals_that_hold_the_value() -> None:
    found = figures([_made(4, 100, 0.95, 1)], SLO)
    assert found["requests_per_s"].value == 4
    assert found["first_p50_s"].value == pytest.approx(0.95, rel=0.03)
    assert found["first_p50_s"].low < found["first_p50_s"].value < found["first_p50_s"].high
    assert found["token_p50_s"].value == pytest.approx(0.05)
    assert 0.6 < found["good"].value < 0.95
    assert found["goodput_per_s"].value == pytest.approx(4 * found["good"].value)


def test_requests_without_an_answer_are_no_goodput() -> None:
    failed = Level(1, 2, 0, [Request(0, None, None, 0, "503"), Request(1, 0.1, 0.2, 2)], [0, 2], [0, 1])
    assert figures([failed], SLO)["goodput_per_s"].value == 0.5
    assert math.isnan(figures([Level(1, 1, 0, [], [0], [0])], SLO)["first_p50_s"].value)


def test_a_mesh_whose_answers_all_end_behind_the_measured_time_has_answered_and_is_compared() -> None:
    error = Request(0.5, None, None, 0, "503")
    late = _result([Level(4, 2, 0, [*(Request(at / 9, 2.0, 7.0, 8) for at in range(9)), error], [0, 1], [0, 0])])
    assert late.answered
    assert not _result([Level(4, 2, 0, [error], [0, 0], [0, 0])]).answered
    assert {difference.verdict for difference in comparison.compare(late, late)} == {"noise"}


def test_a_comparison_finds_what_changed_and_nothing_in_noise(tmp_path: Path) -> None:
    first, again = (_result([_made(4, 100, 0.5, seed) for seed in seeds]) for seeds in ((1, 2, 3), (4, 5, 6)))
    slower = _result([_made(4, 80, 0.7, seed) for seed in (7, 8, 9)])
    slower.save(tmp_path / "slower.json")
    noise = comparison.compare(first, again)
    assert {difference.verdict for difference in noise} == {"noise"}
    assert "0 worse, 0 better" in comparison.verdict(first, again, noise)
    changed = comparison.compare(first, result.read(tmp_path / "slower.json"))
    verdicts = {difference.name: difference.verdict for difference in changed}
    assert (verdicts["tokens_per_s"], verdicts["first_p95_s"], verdicts["token_p50_s"]) == ("worse", "worse", "noise")
    assert {each.verdict for each in comparison.compare(slower, first) if each.name == "tokens_per_s"} == {"better"}


def test_results_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no rate in common"):
        comparison.compare(_result([_made(4, 100, 0.5, 1)]), _result([_made(5, 100, 0.5, 1)]))
    (tmp_path / "other.json").write_text('{"format": "x"}')
    with pytest.raises(ResultError, match="cannot read a result"):
        result.read(tmp_path / "other.json")
    assert DRAWS >= 1000
