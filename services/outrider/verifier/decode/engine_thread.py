"""The engine's own thread: takes calls from the event loop between steps, hands outcomes back to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.outcome import Outcome

T = TypeVar("T")


class EngineThread(threading.Thread):
    """Runs an engine for as long as there is work; sleeps otherwise.

    Args:
        engine: touched by this thread only, once started.
        deliver: called in this thread with each step's outcome.
        failed: called in this thread with the error that ended it.
    """

    def __init__(
        self, engine: Engine, deliver: Callable[[Outcome], None], failed: Callable[[BaseException], None]
    ) -> None:
        super().__init__(name="engine", daemon=True)
        self._engine, self._deliver, self._failed = engine, deliver, failed
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False

    def post(self, action: Callable[[], None]) -> None:
        """Has ``action`` run in the engine's thread before the next step, with all frames of earlier ones delivered."""
        self._inbox.append(action)
        self._wake.set()

    def call(self, action: Callable[[], T]) -> Future[T]:
        """Like `post`, with a future for the result or the error; one that is cancelled in time is not run."""
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

    def stop(self) -> None:
        """Ends the thread after the step it is in."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self._stopping:
                self._wake.clear()
                self._take_calls()
                if self._engine.has_news:  # a proposer reads the prompt while the target does
                    self._deliver(self._engine.tell())
                if self._engine.busy:
                    self._deliver(self._engine.step())
                elif not self._inbox:
                    self._wake.wait()
        except BaseException as error:
            self._failed(error)

    def _take_calls(self) -> None:
        while self._inbox:
            self._inbox.popleft()()
            if self._engine.has_frames:
                self._deliver(self._engine.tell())
