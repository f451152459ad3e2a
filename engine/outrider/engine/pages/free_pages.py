"""The free pages of a table, as gaps between pages that are in use."""

from __future__ import annotations

import heapq


class FreePages:
    """Free pages in gaps, each a longest run of consecutive ones; each call takes logarithmic time, amortized."""

    def __init__(self, pages: int) -> None:
        self._count = 0
        self._ends: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._lengths: list[tuple[int, int]] = []
        self._order: list[int] = []
        if pages:
            self._open(0, pages)

    def __len__(self) -> int:
        return self._count

    def starts_at(self, page: int) -> bool:
        """Whether ``page`` is the first of a gap."""
        return page in self._ends

    def lowest(self) -> int:
        """The lowest free page; there must be one."""
        while self._order[0] not in self._ends:
            heapq.heappop(self._order)
        return self._order[0]

    def longest(self) -> int:
        """The first page of the longest gap, of equal ones the first; there must be one."""
        while self._ends.get(self._lengths[0][1], 0) - self._lengths[0][1] != -self._lengths[0][0]:
            heapq.heappop(self._lengths)
        return self._lengths[0][1]

    def take(self, page: int) -> None:
        """Takes the first page of a gap out."""
        end = self._close(page)
        if end > page + 1:
            self._open(page + 1, end)

    def add(self, page: int) -> None:
        """Adds a page that is not free."""
        start, end = page, page + 1
        if page in self._starts:
            start = self._starts[page]
            self._close(start)
        if end in self._ends:
            end = self._close(end)
        self._open(start, end)

    def _open(self, start: int, end: int) -> None:
        self._ends[start], self._starts[end] = end, start
        self._count += end - start
        heapq.heappush(self._lengths, (start - end, start))
        heapq.heappush(self._order, start)
        if len(self._order) + len(self._lengths) > 8 * len(self._ends) + 64:
            self._forget_closed()

    def _close(self, start: int) -> int:
        """Removes a gap; returns the page behind it."""
        end = self._ends.pop(start)
        del self._starts[end]
        self._count -= end - start
        return end

    def _forget_closed(self) -> None:
        self._lengths = sorted((start - end, start) for start, end in self._ends.items())
        self._order = sorted(self._ends)
