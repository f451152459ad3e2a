"""What verifiers have still to compute, as far as one gateway knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

_MOST = 4096


class Backlog:
    """How long each verifier is busy with what it has: what it told last, or what it was sent, if that is longer.

    Verifiers tell of their queues about once a second; what a burst adds meanwhile is known here at once, and what
    time has passed since is taken off.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._told: dict[str, tuple[Mapping[str, Any], float]] = {}

    def tell(self, instance: str, status: Mapping[str, Any], seconds: float) -> None:
        """Notes that ``instance`` has told, in ``status``, of a queue of ``seconds``; the same object counts once."""
        if len(self._told) >= _MOST:
            self._told.clear()
        known = self._told.get(instance)
        if known is None or known[0] is not status:
            self._told[instance] = status, self._clock() + seconds

    def add(self, instance: str, seconds: float) -> None:
        """Notes that ``instance`` was sent what takes ``seconds``."""
        if len(self._until) >= _MOST:
            self._until.clear()
        self._until[instance] = max(self._until.get(instance, 0.0), self._clock()) + seconds

    def seconds(self, instance: str) -> float:
        """Until ``instance`` will have computed what it has."""
        told = self._told[instance][1] if instance in self._told else 0.0
        return max(told, self._until.get(instance, 0.0), self._clock()) - self._clock()
