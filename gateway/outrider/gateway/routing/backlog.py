"""What verifiers have still to compute, as far as one gateway knows."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST = 4096


class Backlog:
    """Prompt tokens that were sent to each verifier, less what it will have computed since at its rate.

    Verifiers tell of their queues about once a second; what a burst adds meanwhile is known here at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def add(self, instance: str, tokens: int, rate: float) -> None:
        """Notes ``tokens`` that ``instance`` has to compute, at ``rate`` tokens a second."""
        left = self.seconds(instance) + tokens / rate
        if len(self._left) >= _MOST:
            self._left.clear()
        self._left[instance] = (left, self._clock())

    def seconds(self, instance: str) -> float:
        """Until ``instance`` will have computed what it was sent."""
        left, since = self._left.get(instance, (0.0, 0.0))
        return max(left - (self._clock() - since), 0.0)
