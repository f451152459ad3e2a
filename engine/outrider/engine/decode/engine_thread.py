"""The engine's own thread: runs steps, and calls from the event loop between them."""

from __future__ import annotations

from collections.abc import Callable

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import Outcome
from outrider.engine.worker import Inbox, Worker


class EngineThread(Worker):
    """Runs an engine as long as it has work. Delivers all outputs of an action before the next action.

    Args:
        engine: the engine; only this thread touches it once started.
        inbox: actions on the engine.
        deliver: called in this thread with each outcome.
        failed: called in this thread with the error that ended the thread.
    """

    def __init__(
        self,
        engine: Engine,
        inbox: Inbox,
        deliver: Callable[[Outcome], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__("engine", inbox, failed)
        self._engine, self._deliver = engine, deliver

    def after_action(self) -> None:
        """Delivers the outputs that an action caused."""
        if self._engine.has_outputs:
            self._deliver(self._engine.take_outcome())

    def turn(self) -> bool:
        """Runs one step if the engine is busy, and a part of an audit; whether there may be more to do."""
        if self._engine.has_news:  # a proposer reads the prompt while the target does
            self._deliver(self._engine.take_outcome())
        if busy := self._engine.busy:
            self._deliver(self._engine.step())
        return self._engine.audit() or busy
