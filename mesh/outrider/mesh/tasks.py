"""Background tasks whose failures are always reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from outrider.mesh.telemetry import get_logger

_log = get_logger("tasks")


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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("a background task died", task=task.get_name(), exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)
