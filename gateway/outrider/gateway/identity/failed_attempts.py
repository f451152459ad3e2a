"""Counts failed authentications, to slow down guessing."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from outrider.mesh.sites import site_of

LOCK_S = 60.0
"""Seconds in which failures are counted together, and seconds for which further failures are then refused."""
_MOST = 10_000
"""Most addresses, and most keys, that are counted; the one whose last failure is oldest is dropped."""

Clock = Callable[[], float]


class FailedAttempts:
    """Failures by address and by key, each allowed ``most`` times in `LOCK_S` seconds."""

    def __init__(self, most: int, clock: Clock = time.monotonic) -> None:
        self._by_address, self._by_key = _Counter(most, clock), _Counter(most, clock)

    def add(self, address: IPv4Address | IPv6Address | None, key: str | None) -> float:
        """Counts a failure from ``address`` for the id ``key``; None is an unknown address, or no id.

        Returns the seconds for which more are refused; 0 if this one is still allowed.
        """
        waits = [0.0]
        if address is not None:
            waits.append(self._by_address.add(site_of(address)))
        if key is not None:
            waits.append(self._by_key.add(key))
        return max(waits)


class _Counter:
    """Counts by name: for each one the number of failures, and until when they count."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most, self._clock = most, clock
        self._entries: dict[str, tuple[int, float]] = {}

    def add(self, name: str) -> float:
        now = self._clock()
        count, until = self._entries.pop(name, (0, 0.0))
        if now >= until:
            count, until = 0, now + LOCK_S
        if count == self._most:
            until = now + LOCK_S
        self._entries[name] = count + 1, until
        if len(self._entries) > _MOST:
            del self._entries[next(iter(self._entries))]
        return until - now if count >= self._most else 0.0
