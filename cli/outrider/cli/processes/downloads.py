"""Shows downloads of models: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.engine.store import Watch, at_intervals
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

_LINES_S = 10.0


@contextmanager
def shown() -> Iterator[Watch]:
    """A watch for downloads inside the block, which shows them on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield at_intervals(_print, _LINES_S)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


class _Bars:
    """A bar for each model."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, model: str, done: int, total: int) -> None:
        if model not in self._tasks:
            self._tasks[model] = self._bars.add_task(model)
        self._bars.update(self._tasks[model], completed=done, total=total)


def _print(model: str, done: int, total: int) -> None:
    print(f"{model}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB", file=sys.stderr, flush=True)
