"""The table of pages: holders, pages shared by prefix, and free pages."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence

from outrider.engine.pages.free_pages import FreePages


class OutOfPages(Exception):
    """No page can be allocated: every page has a holder."""


class PageTable:
    """Allocates pages, consecutive ones if possible, and finds cached pages by their content.

    A full, committed page is *published* under its chain hash. When its last holder releases the page, the page stays
    cached until its memory is needed. The page of the lowest worth is evicted first; of equal pages, the oldest. The
    worth of a page is the cost of computing it, ``cost`` of its place in the chain, times its number of uses, and at
    least the worth of the pages after it, which cannot be found without it. Unused pages lose worth against new ones
    (GreedyDual-Size-Frequency: Cherkasova 1998, "Improving WWW proxies performance with
    Greedy-Dual-Size-Frequency caching policy").

    Attributes:
        changes: if set, receives the hashes of pages that become findable (True) or cease to be (False).
        evictions: number of evicted pages, by cause.
    """

    def __init__(self, pages: int, cost: Callable[[int], float] = lambda place: 1.0) -> None:
        self.total, self._cost = pages, cost
        self.changes: deque[tuple[bytes, bool]] | None = None
        self.evictions: Counter[str] = Counter()
        self._free = FreePages(pages)
        self._holders = [0] * pages
        self._hash_of: dict[int, bytes] = {}
        self._page_of: dict[bytes, int] = {}
        self._owners: dict[int, str] = {}
        self._uses: Counter[int] = Counter()
        self._worth: dict[int, float] = {}
        self._idle: dict[int, int] = {}
        self._order: list[tuple[float, int, int]] = []
        self._age, self._released, self._released_before = 0.0, 0, 0

    @property
    def available(self) -> int:
        """Pages that can be allocated now."""
        return len(self._free) + len(self._idle)

    @property
    def published(self) -> list[bytes]:
        """Hashes of all findable pages."""
        return list(self._page_of)

    def allocate(self, after: int | None, cause: str = "sequence") -> int:
        """Allocates a page, the one after ``after`` if that is free; `OutOfPages` if every page has a holder.

        Evicts a cached page only if no page is free; ``cause`` names the eviction in `evictions`.
        """
        page = self._choose(after)
        if page in self._idle:
            self._forget(page)
            self.evictions[cause] += 1
        else:
            self._free.take(page)
        self._holders[page] = 1
        return page

    def _forget(self, page: int) -> None:
        self._age = max(self._age, self._worth[page])
        self._unpublish(page)

    def _unpublish(self, page: int) -> None:
        digest = self._hash_of.pop(page)
        del self._page_of[digest], self._uses[page], self._owners[page]
        self._idle.pop(page, None)
        self._worth.pop(page, None)
        if self.changes is not None:
            self.changes.append((digest, False))

    def forget(self, owner: str) -> int:
        """Makes the pages of ``owner`` unfindable, and free once nobody holds them; returns their number."""
        pages = [page for page, name in self._owners.items() if name == owner]
        for page in pages:
            self._unpublish(page)
            if self._holders[page] == 0:
                self._free.add(page)
        return len(pages)

    def expire(self) -> list[int]:
        """Frees the pages that nobody has held since the last call; returns them."""
        pages = [page for page, released in self._idle.items() if released <= self._released_before]
        for page in pages:
            self._unpublish(page)
            self._free.add(page)
        self._released_before = self._released
        return pages

    def unused(self, first: int, end: int) -> list[int]:
        """The pages from ``first`` to before ``end`` that hold nothing of use: free ones."""
        pages = range(first, min(end, self.total))
        return [page for page in pages if self._holders[page] == 0 and page not in self._hash_of]

    def _choose(self, after: int | None) -> int:
        if after is not None and self._free.starts_at(after + 1):
            return after + 1
        if self._free:
            return self._free.longest() if after is None else self._free.lowest()
        if self._idle:
            return self._least()
        raise OutOfPages

    def _least(self) -> int:
        while self._idle.get(self._order[0][2]) != self._order[0][1]:
            heapq.heappop(self._order)
        return self._order[0][2]

    def publish(self, page: int, digest: bytes, owner: str = "") -> None:
        """Makes a full, final page of ``owner`` findable. A second page of the same content stays private.

        A page that is findable keeps its first hash.
        """
        if digest not in self._page_of and page not in self._hash_of:
            self._page_of[digest] = page
            self._hash_of[page] = digest
            self._uses[page], self._owners[page] = 1, owner
            if self.changes is not None:
                self.changes.append((digest, True))

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """The leading pages with ``hashes``; the caller becomes a holder of each."""
        pages = []
        for digest in hashes:
            page = self._page_of.get(digest)
            if page is None:
                break
            self._holders[page] += 1
            self._idle.pop(page, None)
            pages.append(page)
        return pages

    def leading(self, hashes: Sequence[bytes]) -> int:
        """Number of pages that `match` would find."""
        return next((count for count, digest in enumerate(hashes) if digest not in self._page_of), len(hashes))

    def use(self, pages: Sequence[int]) -> None:
        """Counts a use of each of ``pages`` by a request that found them."""
        self._uses.update(pages)

    def release(self, pages: Sequence[int]) -> None:
        """Releases a sequence's pages, given in order; later pages of a prefix are evicted before earlier ones."""
        worth = 0.0
        for place in reversed(range(len(pages))):
            page = pages[place]
            self._holders[page] -= 1
            if page in self._hash_of:
                worth = max(worth, self._worth.get(page, 0.0), self._age + self._uses[page] * self._cost(place))
                self._worth[page] = worth
            if self._holders[page] == 0:
                self._set_idle(page)

    def _set_idle(self, page: int) -> None:
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
        """`AssertionError` unless exactly the pages in ``held`` have holders, and all others can be allocated."""
        holders = [0] * self.total
        for pages in held:
            for page in pages:
                holders[page] += 1
        if holders != self._holders:
            wrong = [page for page in range(self.total) if holders[page] != self._holders[page]]
            raise AssertionError(f"pages {wrong[:8]} are not held as often as they are used")
        if self.available != holders.count(0):
            raise AssertionError(f"{self.available} pages are free, but {holders.count(0)} have no holder")
