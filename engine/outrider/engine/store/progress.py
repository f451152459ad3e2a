"""Tells how far a download is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

Watch = Callable[[str, int, int], None]
"""Called with a model's name, the bytes of it that are here, and all its bytes."""


_LINES_S = 10.0


def unwatched(model: str, done: int, total: int) -> None:
    """A `Watch` that tells nobody."""


def logged(log: Any) -> Watch:
    """A `Watch` that writes a line to a structured log now and then."""
    return at_intervals(lambda model, done, total: log.info("downloading", model=model, bytes=done, of=total), _LINES_S)


def at_intervals(watch: Watch, seconds: float) -> Watch:
    """``watch``, called for the first and the last byte and else at most once in ``seconds``."""
    due = 0.0

    def rarely(model: str, done: int, total: int) -> None:
        nonlocal due
        if done >= total or (now := time.monotonic()) >= due:
            due = time.monotonic() + seconds if done >= total else now + seconds
            watch(model, done, total)

    return rarely


class Interrupted(Exception):
    """The download was told to end."""


class Progress:
    """Counts the bytes of all files of a model; for any number of threads.

    Args:
        model: name of the model.
        total: bytes of all its files.
        watch: is told of each change.
    """

    def __init__(self, model: str, total: int, watch: Watch) -> None:
        self._model, self._total, self._watch = model, total, watch
        self._done = 0
        self._lock = threading.Lock()
        self._ended = False

    def add(self, count: int) -> None:
        """Counts bytes; `Interrupted` after `end`."""
        if self._ended:
            raise Interrupted
        with self._lock:
            self._done += count
            self._watch(self._model, self._done, self._total)

    def end(self) -> None:
        """Ends the downloads that report here at their next bytes."""
        self._ended = True

    def bar(self) -> Any:
        """A class for the argument ``tqdm_class`` of huggingface_hub, whose bars count here."""
        progress = self

        class Bar:
            def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
                progress.add(initial)

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *_: Any) -> None: ...

            def update(self, count: float | None = 1) -> None:
                progress.add(int(count or 0))

        return Bar
