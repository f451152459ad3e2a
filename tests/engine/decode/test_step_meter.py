"""A step's time begins where the step before it ended, if it follows at once."""

from __future__ import annotations

from tests.engine.engines import MakeEngine, request

WAIT_S, IDLE_S = 1.0, 100.0


class Clock:
    """Stands still except when a test moves it on."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


def test_the_time_between_steps_that_follow_each_other_belongs_to_the_later_one(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = make_engine(timer=clock)
    engine.submit(request("a", prompt=4, answer=6))
    engine.step()
    assert engine.tally.prefilled == 4
    waits = -1
    while engine.busy:
        clock.now += WAIT_S
        waits += 1
        engine.step()
    assert waits == 4
    assert engine.guessing.counts.real == waits * WAIT_S


def test_the_time_without_work_belongs_to_no_step(make_engine: MakeEngine) -> None:
    clock = Clock()
    engine = make_engine(timer=clock)
    for name in ("a", "b"):
        engine.submit(request(name, prompt=1, answer=3))
        while engine.busy:
            engine.step()
        clock.now += IDLE_S
    assert engine.tally.tokens == 6
    assert engine.guessing.counts.real == 0.0
