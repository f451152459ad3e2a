"""The engine's own thread: steps, and between them calls from the event loop."""

from __future__ import annotations

from collections.abc import Callable

from outrider.mesh.worker import Inbox, Worker
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.outcome import Outcome


class EngineThread(Worker):
    """Runs an engine for as long as there is work. An action is called with all frames of earlier ones delivered.

    Args:
        engine: touched by this thread only, once started.
        inbox: actions on the engine.
        deliver: called in this thread with each outcome.
        failed: called in this thread with the error that ended it.
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

    def acted(self) -> None:
        """Delivers the frames that an action caused."""
        if self._engine.has_frames:
            self._deliver(self._engine.tell())

    def turn(self) -> bool:
        """One step, if there is one to make."""
        if self._engine.has_news:  # a proposer reads the prompt while the target does
            self._deliver(self._engine.tell())
        if not self._engine.busy:
            return False
        self._deliver(self._engine.step())
        return True
