"""Masks of slow grammars, computed by another thread while steps go on without their sequences."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from outrider.engine.logits.deep_threads import deep_stacks
from outrider.engine.logits.edits import Mask
from outrider.engine.worker import lower_priority

_thread = ThreadPoolExecutor(1, "masks", initializer=lower_priority)
"""One thread: steps need the other cores."""

Compute = Callable[[], Mask]


class MaskAhead:
    """The mask at one place of a sequence: behind a number of tokens."""

    def __init__(self) -> None:
        self._place = -1
        self._mask: Future[Mask] | None = None

    def ready(self, place: int, compute: Compute) -> bool:
        """Whether the mask behind ``place`` tokens is there; the first call for a place has it computed."""
        if self._mask is None or self._place != place:
            with deep_stacks():
                self._mask, self._place = _thread.submit(compute), place
        return self._mask.done()

    def take(self, place: int, compute: Compute) -> Mask:
        """The mask behind ``place`` tokens, computed now unless the other thread has done so, or is about to."""
        return compute() if self._mask is None or self._place != place else self._mask.result()
