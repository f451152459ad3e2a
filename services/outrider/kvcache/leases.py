"""Leases on pages that readers have mapped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

Place = tuple[int, int]


class Leases:
    """Pins of readers, which end by themselves after ``seconds``; ``unpin`` must not wait."""

    def __init__(self, seconds: float, unpin: Callable[[Sequence[Place]], object]) -> None:
        self._seconds, self._unpin = seconds, unpin
        self._numbers = itertools.count(1)
        self._held: dict[int, tuple[list[Place], asyncio.TimerHandle]] = {}

    def grant(self) -> tuple[int, list[Place]]:
        """A new lease, and the list of what it pins, to be added to."""
        number, places = next(self._numbers), list[Place]()
        timer = asyncio.get_running_loop().call_later(self._seconds, self.end, number)
        self._held[number] = (places, timer)
        return number, places

    def end(self, number: int) -> None:
        """Ends a lease, if it has not ended."""
        if (held := self._held.pop(number, None)) is not None:
            held[1].cancel()
            self._unpin_all(held[0])

    def settle(self, number: int, places: list[Place]) -> None:
        """Ends what was pinned for a lease after it had ended."""
        if number not in self._held:
            self._unpin_all(places)

    def _unpin_all(self, places: list[Place]) -> None:
        ended = []
        while places:
            ended.append(places.pop())
        if ended:
            self._unpin(ended)
