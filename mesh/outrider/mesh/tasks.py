"""Background tasks whose failures are always reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from outrider.mesh.telemetry import get_logger

_log = get_logger("tasks")

_T = TypeVar("_T")
_CANCEL_AGAIN_S = 1.0
"""Long enough for what a cancelled task does at its end."""


async def within(seconds: float, work: Coroutine[Any, Any, _T]) -> _T:
    """Returns what ``work`` returns; raises `TimeoutError` if it takes longer than ``seconds`` seconds.

    Unlike `asyncio.timeout`, also ends work that loses a cancellation (`end`).
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        await end(task)
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def end(task: asyncio.Future[Any]) -> None:
    """Cancels ``task`` until it has ended.

    One cancellation is not always enough: `asyncio.wait_for` of Python 3.11 loses a cancellation that comes as its
    future ends (python/cpython#86296), and libraries that try for ever go on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN_S)


class Tasks:
    """Holds tasks by a strong reference; the error of one that fails is logged and passed to ``on_failure``."""

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Runs ``work`` in the background."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel(self) -> None:
        """Cancels all tasks and waits for their end."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*map(end, tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("a background task died", task=task.get_name(), exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)
