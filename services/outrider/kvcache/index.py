"""Which pages a tier holds, and which goes first when room is needed.

A page is worth the time that computing it takes, times how often it was asked for, for each of its bytes; what is not
asked for again ages (GreedyDual-Size-Frequency: Cherkasova 1998, "Improving WWW proxies performance with
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
    """A page that is held."""

    header: Header
    rank: float
    asked: int = 1

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return self.header.size + HEADER_BYTES


class Index:
    """Entries of a tier.

    Attributes:
        used: bytes of all entries.

    Args:
        quota: most bytes.
        tenant_quota: most bytes of one tenant's.
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
        """Whether a page could be held if nothing else were."""
        return header.size + HEADER_BYTES <= min(self._quota, self._tenant_quota)

    def excess(self, header: Header) -> tuple[bytes, str] | None:
        """The page that has to go before another is added, and why; None when there is room."""
        size = header.size + HEADER_BYTES
        if self._used[header.owner] + size > self._tenant_quota:
            return self._least(header.owner), "tenant"
        if self.used + size > self._quota:
            return self.least(), "quota"
        return None

    def least(self) -> bytes:
        """The page that is worth least, the later of equal ones in a chain."""
        heads = [(self._head(owner), owner) for owner in list(self._heaps) if self._used[owner]]
        return min(heads)[0][2]

    def expired(self, key: bytes) -> bool:
        """Whether the page's time is over."""
        return self._entries[key].header.expires <= self._clock()

    def add(self, key: bytes, header: Header) -> None:
        """Notes a page."""
        self.drop(key)
        entry = self._entries[key] = Entry(header, 0.0)
        self._used[header.owner] += entry.size
        self.used += entry.size
        self._rate(key, entry)

    def touch(self, key: bytes) -> None:
        """Notes that a page was asked for."""
        if (entry := self._entries.get(key)) is not None:
            entry.asked += 1
            self._rate(key, entry)

    def drop(self, key: bytes) -> None:
        """Forgets a page, if it is there."""
        if (entry := self._entries.pop(key, None)) is not None:
            owner = entry.header.owner
            self._used[owner] -= entry.size
            self.used -= entry.size
            if not self._used[owner]:
                del self._used[owner], self._heaps[owner]

    def evict(self, key: bytes) -> None:
        """Forgets the least page: what is asked for from now on is worth more than it was."""
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
