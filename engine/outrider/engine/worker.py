"""Threads beside the event loop: one that works in turns and runs actions that others post, and their priority."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_NICE = 5


def lower_priority() -> None:
    """Lowers the priority of the calling thread below what it was."""
    os.nice(_NICE)  # Linux: this thread only


class Inbox:
    """Actions for a worker, from any thread, in order."""

    def __init__(self) -> None:
        self._actions: deque[Callable[[], object]] = deque()
        self._wake = threading.Event()

    def __bool__(self) -> bool:
        """Whether an action waits."""
        return bool(self._actions)

    @property
    def pending(self) -> tuple[Callable[[], object], ...]:
        """The actions that wait, in order."""
        return tuple(self._actions)

    def post(self, action: Callable[[], object]) -> None:
        """Adds ``action``; it runs in the worker's thread before the worker's next turn."""
        self._actions.append(action)
        self.wake()

    def call(self, action: Callable[[], T]) -> Future[T]:
        """Like `post`, with a future for the result or the error; a call that is cancelled in time does not run."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except Exception as error:
                future.set_exception(error)

        self.post(run)
        return future

    def take(self) -> Callable[[], object]:
        """Removes the first action; `IndexError` when there is none."""
        return self._actions.popleft()

    def wake(self) -> None:
        """Ends the worker's sleep."""
        self._wake.set()

    def clear(self) -> None:
        """Lets `wait` sleep until the next `post` or `wake`."""
        self._wake.clear()

    def wait(self) -> None:
        """Sleeps until something is posted, or until `wake`."""
        self._wake.wait()


class Worker(threading.Thread):
    """Takes turns while there is work, and sleeps otherwise. A subclass defines `turn`.

    Args:
        name: of the thread.
        inbox: whose actions run between turns.
        on_failure: called in this thread with the error that ends it.
    """

    def __init__(self, name: str, inbox: Inbox, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._inbox, self._on_failure = inbox, on_failure
        self._stopping = False

    def turn(self) -> bool:
        """Does the next piece of work; returns whether there is more to do at once."""
        raise NotImplementedError

    def after_action(self) -> None:
        """Called after each action from the inbox."""

    def stop(self) -> None:
        """Ends the thread after its turn."""
        self._stopping = True
        self._inbox.wake()

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self._stopping:
                self._inbox.clear()
                while self._inbox:
                    self._inbox.take()()
                    self.after_action()
                if not self.turn() and not self._inbox and not self._stopping:
                    self._inbox.wait()
        except BaseException as error:
            self._on_failure(error)
