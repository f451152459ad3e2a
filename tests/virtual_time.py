"""An event loop whose time passes at once: it jumps to the next timer where nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop at ``now`` seconds; ``on_quiet`` is called before each jump. Only for work without sockets and threads."""

    def __init__(self, on_quiet: Callable[[], object]) -> None:
        self.now, self._on_quiet = 0.0, on_quiet
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now

    def jump(self, seconds: float) -> None:
        """Lets ``seconds`` pass."""
        self._on_quiet()
        self.now += seconds


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everything waits, and no timer will end that"
        if timeout > 0:
            self._loop.jump(timeout)
        return super().select(0)


def run(main: Coroutine[Any, Any, None], on_quiet: Callable[[], object] = lambda: None) -> None:
    """Runs ``main`` in a loop of its own; `time.monotonic` tells the loop's time meanwhile."""
    loop = VirtualLoop(on_quiet)
    with mock.patch.object(time, "monotonic", loop.time):
        try:
            loop.run_until_complete(main)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
