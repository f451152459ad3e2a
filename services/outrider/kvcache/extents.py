"""First-fit allocation of room in an arena."""

from __future__ import annotations

from bisect import bisect_left

_ALIGNMENT = 64


class Extents:
    """Free extents of an arena of ``size`` bytes; neighbours merge when they are freed."""

    def __init__(self, size: int) -> None:
        self._free: list[tuple[int, int]] = [(0, size - size % _ALIGNMENT)]

    def take(self, size: int) -> int | None:
        """Allocates ``size`` bytes in one piece and returns their offset; None without such room."""
        size = _rounded(size)
        for place, (start, length) in enumerate(self._free):
            if length >= size:
                self._free[place : place + 1] = [(start + size, length - size)] if length > size else []
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """Frees the ``size`` bytes at ``start`` that `take` allocated."""
        size = _rounded(size)
        place = bisect_left(self._free, (start, 0))
        if place < len(self._free) and self._free[place][0] == start + size:
            size += self._free.pop(place)[1]
        if place and sum(self._free[place - 1]) == start:
            start, before = self._free.pop(place - 1)
            place, size = place - 1, size + before
        self._free.insert(place, (start, size))


def _rounded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
