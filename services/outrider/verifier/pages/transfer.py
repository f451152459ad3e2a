"""Measures how long fetching takes."""

from __future__ import annotations

import time
from collections.abc import Callable

_WEIGHT = 0.3
_FORGET_S = 30.0
"""Age in seconds at which measurements expire: conditions change, and a path that is not used is not measured."""


class TransferTime:
    """Moving averages of the latency of a lookup in seconds, and of the rate of fetches in bytes a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latency = self._rate = 0.0
        self._measured = -_FORGET_S

    def measured(self, size: int, asking: float, fetching: float) -> None:
        """Notes a transfer of ``size`` bytes: ``asking`` seconds of the lookup, ``fetching`` seconds of the fetch."""
        rate = size / max(fetching, 1e-6)
        fresh = self._clock() - self._measured < _FORGET_S
        weight = _WEIGHT if fresh else 1.0
        self._latency += weight * (asking - self._latency)
        self._rate += weight * (rate - self._rate)
        self._measured = self._clock()

    def seconds(self, size: int) -> float:
        """Expected seconds to fetch ``size`` bytes; 0 without a recent measurement."""
        if self._clock() - self._measured >= _FORGET_S:
            return 0.0
        return self._latency + size / self._rate
