"""Deadlines: what an engine expects, what it refuses, and what it drops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from outrider.engine.decode.outcome import Outcome
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.parameters import SamplingParams
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.scheduling.estimate import TooLate

from tests.engine.engines import VOCABULARY, CheckedEngine, MakeEngine, request, watch

FLAT = CostCurve([1, 1000], [0.001, 0.001])


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def finishes(outcome: Outcome) -> dict[str, Output]:
    return {asked.id: frame for asked, frame in outcome.outputs if frame.finish is not None}


def timed(make_engine: MakeEngine, clock: Clock, step_s: float, running: int = 2) -> CheckedEngine:
    """An engine whose steps take ``step_s`` on the clock."""
    cost = CostCurve([1, 1000], [step_s, step_s])
    engine = make_engine(VOCABULARY, running=running, clock=clock, timer=clock, cost=cost)
    engine.runner.before = lambda: clock.spend(step_s)
    return engine


@pytest.mark.parametrize("waiting", [0, 1, 4, 9])
def test_the_first_token_comes_about_when_it_was_expected(make_engine: MakeEngine, waiting: int) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, 0.5)
    for index in range(2 + waiting):
        engine.submit(request(f"before{index}", answer=10 + 3 * index))
        engine.step()
    began, expected = clock.now, engine.submit(request("asked", answer=4)).first_s
    heard = False
    while not heard:
        heard = any(asked.id == "asked" and frame.tokens for asked, frame in engine.step().outputs)
    assert clock.now - began == pytest.approx(expected, rel=0.35, abs=1.0)


def test_a_request_that_would_come_too_late_is_refused_and_leaves_nothing_behind(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, 0.5)
    for index in range(4):
        engine.submit(request(f"before{index}", answer=40))
    engine.step()
    asked, waiting = request("asked", answer=4), len(engine.scheduler.waiting)
    with pytest.raises(TooLate) as caught:
        engine.submit(replace(asked, first_by=clock.now + 3.0))
    assert caught.value.param == "ttft_ms"
    assert caught.value.retry_s == pytest.approx(caught.value.seconds - 3.0)
    assert (engine.load, len(engine.scheduler.waiting)) == (4, waiting)
    engine.submit(replace(asked, first_by=clock.now + 200.0))


def test_an_answer_that_is_too_long_for_its_time_is_refused_for_good(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, 0.5)
    with pytest.raises(TooLate) as caught:
        engine.submit(replace(request("asked", answer=40), end_by=clock.now + 10.0))
    assert (caught.value.param, caught.value.retry_s) == ("timeout_ms", None)
    assert caught.value.seconds == pytest.approx(20.0, rel=0.2)
    engine.submit(replace(request("asked", answer=10), end_by=clock.now + 10.0))


def test_an_answer_that_may_end_by_itself_is_expected_to_be_as_long_as_usual(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, 0.5)
    engine.submit(request("usual", answer=10))
    while engine.busy:
        engine.step()
    engine.submit(
        replace(
            request("open", answer=200),
            parameters=SamplingParams(stop=("nothing says this",)),
            end_by=clock.now + 10.0,
        )
    )
    with pytest.raises(TooLate):
        engine.submit(replace(request("certain", answer=200), end_by=clock.now + 10.0))


def test_a_request_that_was_begun_elsewhere_is_taken_however_late_it_is(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = timed(make_engine, clock, 0.5)
    engine.submit(replace(request("begun", answer=40), emitted=[3], end_by=clock.now + 1.0))


def test_what_waits_past_its_deadline_is_dropped_without_a_step(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = make_engine(VOCABULARY, running=1, clock=clock, cost=FLAT)
    engine.submit(request("long", answer=30))
    engine.submit(replace(request("hurried", answer=4), first_by=clock.now + 5.0))
    steps = watch(engine)
    engine.step()
    clock.now += 5.0
    last = finishes(engine.step())["hurried"]
    assert last.finish is Finish.TIMEOUT
    assert last.error == "the first token did not come in time"
    assert last.usage is None, "nothing was computed"
    assert all("hurried" not in rows for rows in steps)
    assert engine.load == 1


def test_an_answer_is_cut_off_at_its_deadline_and_says_so(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = make_engine(VOCABULARY, clock=clock, cost=FLAT)
    engine.submit(replace(request("cut", answer=30), first_by=clock.now + 1.0, end_by=clock.now + 9.0))
    for _ in range(5):
        engine.step()
    clock.now += 8.0
    assert finishes(engine.step()) == {}, "the first token was in time"
    clock.now += 1.0
    last = finishes(engine.step())["cut"]
    assert (last.finish, last.error) == (Finish.TIMEOUT, "the answer did not end in time")
    assert last.usage is not None
    assert last.usage.completion_tokens == 6
    assert engine.load == 0
