"""Leases on pages that readers have mapped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

Place = tuple[int, int]


class Leases:
    """Readers' pins, which expire after ``seconds``; ``unpin`` must not wait."""

    def __init__(self, seconds: float, unpin: Callable[[Sequence[Place]], object]) -> None:
        self._seconds, self._unpin = seconds, unpin
        self._numbers = itertools.count(1)
        self._leases: dict[int, tuple[list[Place], asyncio.TimerHandle]] = {}

    def grant(self) -> tuple[int, list[Place]]:
        """The number of a new lease, and its list of pinned places, to which the caller adds."""
        number, places = next(self._numbers), list[Place]()
        timer = asyncio.get_running_loop().call_later(self._seconds, self.end, number)
        self._leases[number] = (places, timer)
        return number, places

    def end(self, number: int) -> None:
        """Ends a lease, if it still runs."""
        if (lease := self._leases.pop(number, None)) is not None:
            lease[1].cancel()
            self._unpin_all(lease[0])

    def settle(self, number: int, places: list[Place]) -> None:
        """Unpins the places that were added to a lease after its end."""
        if number not in self._leases:
            self._unpin_all(places)

    def _unpin_all(self, places: list[Place]) -> None:
        unpinned = []
        while places:
            unpinned.append(places.pop())
        if unpinned:
            self._unpin(unpinned)
