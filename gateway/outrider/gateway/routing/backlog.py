"""Estimates of the time that verifiers still need for their work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

_MOST = 4096


class Backlog:
    """The time until each verifier is idle: the larger of what it reported last and what this gateway sent it.

    Verifiers report their queues about once a second. Requests that this gateway sends count at once, and the estimates
    shrink as time passes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._reported: dict[str, tuple[Mapping[str, Any], float]] = {}

    def report(self, instance: str, status: Mapping[str, Any], seconds: float) -> None:
        """Notes a queue of ``seconds`` that ``instance`` reported in ``status``; the same object counts once."""
        if len(self._reported) >= _MOST:
            self._reported.clear()
        last = self._reported.get(instance)
        if last is None or last[0] is not status:
            self._reported[instance] = status, self._clock() + seconds

    def add(self, instance: str, seconds: float) -> None:
        """Notes that this gateway sent ``instance`` work of ``seconds``."""
        if len(self._until) >= _MOST:
            self._until.clear()
        self._until[instance] = max(self._until.get(instance, 0.0), self._clock()) + seconds

    def seconds(self, instance: str) -> float:
        """Seconds until ``instance`` is idle."""
        reported = self._reported[instance][1] if instance in self._reported else 0.0
        return max(reported, self._until.get(instance, 0.0), self._clock()) - self._clock()
