"""The engine's thread, and calls whose callers have left."""

from __future__ import annotations

import threading

import pytest
from outrider.engine.decode.engine_thread import EngineThread
from outrider.engine.decode.outcome import Outcome
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.worker import Inbox

from tests.engine.engines import MakeEngine


def test_a_call_whose_caller_has_left_is_not_made_and_ends_nothing(make_engine: MakeEngine) -> None:
    failures: list[BaseException] = []
    inbox = Inbox()
    thread = EngineThread(make_engine(), inbox, lambda outcome: None, failures.append)
    made: list[str] = []
    left = inbox.call(lambda: made.append("left"))
    waited = inbox.call(lambda: made.append("waited"))
    assert left.cancel()
    thread.start()
    waited.result(30)
    thread.stop()
    thread.join(30)
    assert (made, failures) == (["waited"], [])


def test_a_call_that_fails_tells_its_caller_alone(make_engine: MakeEngine) -> None:
    failures: list[BaseException] = []
    inbox = Inbox()
    thread = EngineThread(make_engine(), inbox, lambda outcome: None, failures.append)

    def fail() -> None:
        raise ValueError("no such thing")

    failed, next_one = inbox.call(fail), inbox.call(lambda: 1)
    thread.start()
    with pytest.raises(ValueError, match="no such thing"):
        failed.result(30)
    assert next_one.result(30) == 1
    thread.stop()
    thread.join(30)
    assert failures == []


def test_drafters_elsewhere_hear_of_a_request_before_the_target_reads_its_prompt(make_engine: MakeEngine) -> None:
    outcomes: list[Outcome] = []
    ended = threading.Event()

    def deliver(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if any(frame.finish is not None for _, frame in outcome.outputs):
            ended.set()

    failures: list[BaseException] = []
    inbox = Inbox()
    engine = make_engine()
    thread = EngineThread(engine, inbox, deliver, failures.append)
    inbox.call(lambda: engine.submit(Request("r", "t", [1, 2, 3], Sampling(0.0), 4)))
    thread.start()
    assert ended.wait(30)
    thread.stop()
    thread.join(30)
    assert failures == []
    assert [opened.opening.tokens for opened in outcomes[0].opened] == [[1, 2, 3]]
    assert outcomes[0].outputs == []
    assert sum(len(outcome.opened) for outcome in outcomes) == 1
