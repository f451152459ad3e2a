"""KV pages: who holds them, which are shared by prefix, which are free."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence


class OutOfPages(Exception):
    """No page is free and none that is merely cached can be taken back."""


class PageTable:
    """Hands out pages, consecutive where it can, and finds pages whose content is wanted again.

    A full, committed page is *published* under the hash of its tokens and of the page before it. When its last
    holder releases it, it stays findable until its room is needed. What is worth least goes first: a page is worth what
    computing it takes, by ``cost`` of its place in its chain, times how often it was used, and never less than
    those behind it, which nobody finds without it; of equal ones the oldest. What nobody asks for ages
    (GreedyDual-Size-Frequency: Cherkasova 1998, "Improving WWW proxies performance with
    Greedy-Dual-Size-Frequency caching policy").

    Attributes:
        changes: where set, hashes of pages are appended to it as they become findable (True), and are no more (False).
        evictions: pages that gave way, by what for.
    """

    def __init__(self, pages: int, cost: Callable[[int], float] = lambda place: 1.0) -> None:
        self.total, self._cost = pages, cost
        self.changes: deque[tuple[bytes, bool]] | None = None
        self.evictions: Counter[str] = Counter()
        self._free = set(range(pages))
        self._holders = [0] * pages
        self._hash_of: dict[int, bytes] = {}
        self._page_of: dict[bytes, int] = {}
        self._uses: Counter[int] = Counter()
        self._worth: dict[int, float] = {}
        self._idle: dict[int, int] = {}
        self._order: list[tuple[float, int, int]] = []
        self._age, self._released = 0.0, 0

    @property
    def available(self) -> int:
        """Pages that could be allocated now."""
        return len(self._free) + len(self._idle)

    @property
    def published(self) -> list[bytes]:
        """Hashes of all pages that are findable."""
        return list(self._page_of)

    def allocate(self, after: int | None, cause: str = "sequence") -> int:
        """A page, the one behind ``after`` where that is free; `OutOfPages` when none can be had.

        What is merely cached gives way only when nothing is free; ``cause`` says what for.
        """
        page = self._choose(after)
        if page in self._idle:
            self._forget(page)
            self.evictions[cause] += 1
        self._free.discard(page)
        self._holders[page] = 1
        return page

    def _forget(self, page: int) -> None:
        self._age = max(self._age, self._worth.pop(page))
        digest = self._hash_of.pop(page)
        del self._idle[page], self._page_of[digest], self._uses[page]
        if self.changes is not None:
            self.changes.append((digest, False))

    def _choose(self, after: int | None) -> int:
        if after is not None and after + 1 in self._free:
            return after + 1
        if self._free:
            return self._longest_gap() if after is None else min(self._free)
        if self._idle:
            return self._least()
        raise OutOfPages

    def _least(self) -> int:
        while self._idle.get(self._order[0][2]) != self._order[0][1]:
            heapq.heappop(self._order)
        return self._order[0][2]

    def _longest_gap(self) -> int:
        best = start = length = longest = 0
        for page in range(self.total):
            if page not in self._free:
                length = 0
                continue
            start = page if length == 0 else start
            length += 1
            if length > longest:
                best, longest = start, length
        return best

    def publish(self, page: int, digest: bytes) -> None:
        """Makes a full page that will not change findable. A second page of the same content stays private."""
        if digest not in self._page_of:
            self._page_of[digest] = page
            self._hash_of[page] = digest
            self._uses[page] = 1
            if self.changes is not None:
                self.changes.append((digest, True))

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """The leading pages that are held under ``hashes``; the caller holds them from now on."""
        found = []
        for digest in hashes:
            page = self._page_of.get(digest)
            if page is None:
                break
            self._holders[page] += 1
            self._idle.pop(page, None)
            found.append(page)
        return found

    def leading(self, hashes: Sequence[bytes]) -> int:
        """How many pages `match` would find."""
        return next((count for count, digest in enumerate(hashes) if digest not in self._page_of), len(hashes))

    def use(self, pages: Sequence[int]) -> None:
        """Notes that a request makes use of pages that it found."""
        self._uses.update(pages)

    def release(self, pages: Sequence[int]) -> None:
        """Gives pages back, a sequence's in order; later ones of a prefix are forgotten before the earlier ones."""
        worth = 0.0
        for place in reversed(range(len(pages))):
            page = pages[place]
            self._holders[page] -= 1
            if page in self._hash_of:
                worth = max(worth, self._worth.get(page, 0.0), self._age + self._uses[page] * self._cost(place))
                self._worth[page] = worth
            if self._holders[page] == 0:
                self._rest(page)

    def _rest(self, page: int) -> None:
        if page not in self._hash_of:
            self._free.add(page)
            return
        self._released += 1
        self._idle[page] = self._released
        heapq.heappush(self._order, (self._worth[page], self._released, page))
        if len(self._order) > 4 * self.total:
            self._order = [(self._worth[idle], since, idle) for idle, since in self._idle.items()]
            heapq.heapify(self._order)

    def check(self, held: Sequence[Sequence[int]]) -> None:
        """`AssertionError` unless exactly the pages in ``held`` are held, and every other can be allocated."""
        holders = [0] * self.total
        for pages in held:
            for page in pages:
                holders[page] += 1
        if holders != self._holders:
            wrong = [page for page in range(self.total) if holders[page] != self._holders[page]]
            raise AssertionError(f"pages {wrong[:8]} are not held as often as they are used")
        if self.available != holders.count(0):
            raise AssertionError(f"{self.available} pages are free, but {holders.count(0)} have no holder")
