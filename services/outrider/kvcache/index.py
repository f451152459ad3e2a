"""The pages of a tier, and the order in which they are evicted.

The rank of a page is the time to compute it, times its number of requests, divided by its bytes. Pages that are not
requested again age (GreedyDual-Size-Frequency: Cherkasova 1998, "Improving WWW proxies performance with
Greedy-Dual-Size-Frequency caching policy").
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.kvcache.blob import HEADER_BYTES, Header


@dataclass(slots=True, eq=False)
class Entry:
    """A page of the index."""

    header: Header
    rank: float
    asked: int = 1

    @property
    def size(self) -> int:
        """Stored bytes, header included."""
        return self.header.size + HEADER_BYTES


class Index:
    """Entries of a tier.

    Attributes:
        used: bytes of all entries.

    Args:
        quota: most bytes.
        tenant_quota: most bytes of one tenant.
        clock: seconds, as in `Header.expires`.
    """

    def __init__(self, quota: int, tenant_quota: int, clock: Callable[[], float]) -> None:
        self._quota, self._tenant_quota, self._clock = quota, tenant_quota, clock
        self._entries: dict[bytes, Entry] = {}
        self._heaps: defaultdict[bytes, list[tuple[float, int, bytes]]] = defaultdict(list)
        self._used: defaultdict[bytes, int] = defaultdict(int)
        self._age = 0.0
        self.used = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def fits(self, header: Header) -> bool:
        """Whether a page fits into the empty tier."""
        return header.size + HEADER_BYTES <= min(self._quota, self._tenant_quota)

    def excess(self, header: Header) -> tuple[bytes, str] | None:
        """The page to evict before another is added, and the cause; None if there is room."""
        size = header.size + HEADER_BYTES
        if self._used[header.owner] + size > self._tenant_quota:
            return self._least(header.owner), "tenant"
        if self.used + size > self._quota:
            return self.least(), "quota"
        return None

    def least(self) -> bytes:
        """The page of the lowest rank; among equals, the later in its chain."""
        heads = [(self._head(owner), owner) for owner in list(self._heaps) if self._used[owner]]
        return min(heads)[0][2]

    def expired(self, key: bytes) -> bool:
        """Whether a page has expired."""
        return self._entries[key].header.expires <= self._clock()

    def add(self, key: bytes, header: Header) -> None:
        """Adds a page."""
        self.drop(key)
        entry = self._entries[key] = Entry(header, 0.0)
        self._used[header.owner] += entry.size
        self.used += entry.size
        self._rate(key, entry)

    def headers(self) -> list[tuple[bytes, Header]]:
        """Keys and headers of all pages."""
        return [(key, entry.header) for key, entry in self._entries.items()]

    def touch(self, key: bytes) -> None:
        """Counts a request for a page."""
        if (entry := self._entries.get(key)) is not None:
            entry.asked += 1
            self._rate(key, entry)

    def drop(self, key: bytes) -> None:
        """Removes a page, if present."""
        if (entry := self._entries.pop(key, None)) is not None:
            owner = entry.header.owner
            self._used[owner] -= entry.size
            self.used -= entry.size
            if not self._used[owner]:
                del self._used[owner], self._heaps[owner]

    def evict(self, key: bytes) -> None:
        """Removes a page and raises the age to its rank: pages requested from now on rank higher."""
        self._age = max(self._age, self._entries[key].rank)
        self.drop(key)

    def _rate(self, key: bytes, entry: Entry) -> None:
        entry.rank = self._age + entry.asked * entry.header.seconds / entry.size
        heap = self._heaps[entry.header.owner]
        heapq.heappush(heap, (entry.rank, -entry.header.index, key))
        if len(heap) > 64 and len(heap) > 4 * len(self._entries):
            heap[:] = [item for item in set(heap) if self._is_current(item)]
            heapq.heapify(heap)

    def _least(self, owner: bytes) -> bytes:
        return self._head(owner)[2]

    def _head(self, owner: bytes) -> tuple[float, int, bytes]:
        heap = self._heaps[owner]
        while not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0]

    def _is_current(self, item: tuple[float, int, bytes]) -> bool:
        entry = self._entries.get(item[2])
        return entry is not None and entry.rank == item[0]
