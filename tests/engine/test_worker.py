"""A worker: turns while there is work, and actions from its inbox between turns."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from outrider.engine.worker import Inbox, Worker

WAIT_S = 30


class Counter(Worker):
    """Has ``left`` turns of work, and writes down what it does."""

    def __init__(self, left: int = 0) -> None:
        self.inbox, self.failures = Inbox(), list[BaseException]()
        super().__init__("counter", self.inbox, self.failures.append)
        self.left, self.log = left, list[str]()
        self.idle = threading.Event()

    def turn(self) -> bool:
        if not self.left:
            self.idle.set()
            return False
        self.left -= 1
        self.log.append("turn")
        return True

    def after_action(self) -> None:
        self.log.append("after")

    def act(self, name: str) -> None:
        self.log.append(name)


@pytest.fixture
def counter() -> Iterator[Counter]:
    worker = Counter(left=2)
    yield worker
    worker.stop()
    if worker.ident is not None:
        worker.join(WAIT_S)
    assert not worker.is_alive()


def test_actions_run_in_order_before_the_next_turn_and_after_action_follows_each(counter: Counter) -> None:
    counter.inbox.post(lambda: counter.act("first"))
    counter.inbox.post(lambda: counter.act("second"))
    counter.start()
    assert counter.idle.wait(WAIT_S)
    assert counter.log == ["first", "after", "second", "after", "turn", "turn"]


def test_an_idle_worker_wakes_for_an_action_and_takes_the_turns_that_it_brings(counter: Counter) -> None:
    counter.start()
    assert counter.idle.wait(WAIT_S)
    counter.idle.clear()

    def add_work() -> None:
        counter.left = 1

    counter.inbox.call(add_work).result(WAIT_S)
    assert counter.idle.wait(WAIT_S)
    assert counter.log == ["turn", "turn", "after", "turn"]


def test_a_call_cancelled_before_it_began_does_not_run_and_the_next_one_does(counter: Counter) -> None:
    cancelled = counter.inbox.call(lambda: counter.act("cancelled"))
    answered = counter.inbox.call(lambda: len(counter.inbox.pending))
    assert cancelled.cancel()
    counter.start()
    assert answered.result(WAIT_S) == 0
    assert "cancelled" not in counter.log
    assert counter.failures == []


def test_an_error_of_a_call_is_its_caller_s_alone(counter: Counter) -> None:
    failed = counter.inbox.call(lambda: 1 // 0)
    counter.start()
    with pytest.raises(ZeroDivisionError):
        failed.result(WAIT_S)
    assert counter.inbox.call(lambda: 1).result(WAIT_S) == 1
    assert counter.failures == []


def test_an_error_of_a_posted_action_ends_the_worker_and_is_reported(counter: Counter) -> None:
    counter.inbox.post(lambda: 1 // 0)
    counter.start()
    counter.join(WAIT_S)
    assert [type(error) for error in counter.failures] == [ZeroDivisionError]
    assert counter.log == []


@pytest.mark.parametrize("nice", [0, 7])
def test_a_thread_of_lower_priority_is_below_the_others_of_a_process_of_any_priority(nice: int) -> None:
    code = """
import os, sys, threading
from outrider.engine.worker import lower_priority
os.nice(int(sys.argv[1]))
found = []
def run():
    lower_priority()
    found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
thread = threading.Thread(target=run)
thread.start()
thread.join()
print(os.getpriority(os.PRIO_PROCESS, 0) < found[0])
"""
    completed = subprocess.run([sys.executable, "-c", code, str(nice)], capture_output=True, text=True, check=True)
    assert completed.stdout == "True\n"
