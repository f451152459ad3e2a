"""Requests that end when nobody says any more that they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Leases:
    """Calls ``expired`` with each request whose lease ran out. To be used in one event loop."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        self._expired = expired
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def grant(self, request: str, seconds: float) -> None:
        """Gives ``request`` so long from now, in place of what it had."""
        self.end(request)
        self._timers[request] = asyncio.get_running_loop().call_later(seconds, self._run_out, request)

    def renew(self, requests: Iterable[str], seconds: float) -> None:
        """Like `grant`, for those that have a lease."""
        for request in requests:
            if request in self._timers:
                self.grant(request, seconds)

    def end(self, request: str) -> None:
        """Forgets the lease of ``request``, if it has one."""
        if (timer := self._timers.pop(request, None)) is not None:
            timer.cancel()

    def _run_out(self, request: str) -> None:
        del self._timers[request]
        self._expired(request)
