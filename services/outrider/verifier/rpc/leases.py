"""Leases of requests: a request ends when no gateway renews its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Leases:
    """Calls ``expired`` with each request whose lease has expired. For use in one event loop."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        self._expired = expired
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def grant(self, request: str, seconds: float) -> None:
        """Gives ``request`` a lease of ``seconds`` from now; it replaces an earlier lease."""
        self.end(request)
        self._timers[request] = asyncio.get_running_loop().call_later(seconds, self._run_out, request)

    def renew(self, requests: Iterable[str], seconds: float) -> None:
        """Like `grant`, for the ``requests`` that have a lease."""
        for request in requests:
            if request in self._timers:
                self.grant(request, seconds)

    def end(self, request: str) -> None:
        """Drops the lease of ``request``, if any."""
        if (timer := self._timers.pop(request, None)) is not None:
            timer.cancel()

    def _run_out(self, request: str) -> None:
        del self._timers[request]
        self._expired(request)
