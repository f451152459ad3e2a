"""All tiers of an instance as one store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from outrider.kvcache.arena import MemoryTier, data_offset
from outrider.kvcache.blob import DamagedPage, Header, open_blob
from outrider.kvcache.index import Index
from outrider.kvcache.metrics import EVICTED, STORED
from outrider.kvcache.tiers import Tier

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class IndexedTier:
    """A tier of the store: its plug-in name, the `Tier` that holds its pages, and their index."""

    name: str
    storage: Tier
    index: Index


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page that was found: its ``data``, or its pinned place in the arena."""

    header: Header
    tier: str
    data: bytes = b""
    place: tuple[int, int] | None = None

    @property
    def offset(self) -> int:
        """Offset of a pinned page's data in the arena's file."""
        return data_offset(self.place) if self.place is not None else 0


class Store:
    """Pages over tiers, fastest first. A page evicted from a tier goes to the next; a page found in a lower tier is
    copied to the first. Thread-safe; calls run one at a time.
    """

    def __init__(self, tiers: Sequence[IndexedTier], clock: Clock = time.time) -> None:
        self._tiers, self._clock = tiers, clock
        self._lock = threading.Lock()
        self._erased: dict[bytes, float] = {}

    def recover(self) -> None:
        """Adds the pages that tiers hold from an earlier process. Their data is checked when it is read.

        A shared tier may be large, and is read page by page.
        """
        with self._lock:
            for level, tier in enumerate(self._tiers):
                for key, blob in [] if tier.storage.shared else list(tier.storage.stored()):
                    self._recover(level, key, blob)

    def erase(self, owner: bytes, before: float) -> dict[str, int]:
        """Removes the pages of ``owner`` that were stored at ``before`` or earlier; returns their number by tier.

        Such a page is also a miss if another instance writes it to a shared tier later.
        """
        self._erased[owner] = max(before, self._erased.get(owner, before))
        return {tier.name: self._remove(tier, self._is_erased, "erased") for tier in self._tiers}

    def expire(self) -> None:
        """Removes the pages whose time is over."""
        for tier in self._tiers:
            self._remove(tier, self._is_expired, "ttl")

    def _remove(self, tier: IndexedTier, goes: Callable[[Header], bool], cause: str) -> int:
        stored = list(_stored_headers(tier)) if tier.storage.shared else []
        with self._lock:
            keys = {key for key, header in [*tier.index.headers(), *stored] if goes(header)}
            for key in keys:
                self._forget(tier, key, cause)
        return len(keys)

    def _is_erased(self, header: Header) -> bool:
        return header.stored <= self._erased.get(header.owner, -inf)

    def _is_expired(self, header: Header) -> bool:
        return header.expires <= self._clock()

    def _recover(self, level: int, key: bytes, blob: bytes) -> None:
        tier = self._tiers[level]
        try:
            header = Header.read(blob)
        except DamagedPage:
            self._forget(tier, key, "damaged")
            return
        if not tier.index.fits(header):
            self._forget(tier, key, "quota")
            return
        self._make_room(level, header, demote=False)
        tier.index.add(key, header)

    def leading(self, keys: Sequence[bytes]) -> int:
        """Number of leading ``keys`` that the store holds."""
        with self._lock:
            for count, key in enumerate(keys):
                if not self._holds(key):
                    return count
        return len(keys)

    def put(self, key: bytes, header: Header, data: bytes) -> bool:
        """Stores a page; False if it was held before or finds no room. `DamagedPage` if the checksum is wrong."""
        blob = header.pack() + data
        open_blob(key, blob)
        with self._lock:
            if any(key in tier.index for tier in self._tiers):
                return False
            return self._place(0, key, header, blob)

    def get(self, key: bytes, *, pin: bool = False) -> FoundPage | None:
        """The page; None if the store lacks it. With ``pin``, a page in the arena stays in place until `unpin`."""
        with self._lock:
            for level, tier in enumerate(self._tiers):
                if (page := self._read(tier, key)) is not None:
                    header, data = page
                    tier.index.touch(key)
                    if level and key not in self._tiers[0].index:
                        self._place(0, key, header, header.pack() + data)
                    place = self._pin(key) if pin else None
                    return FoundPage(header, tier.name, b"" if place else data, place)
        return None

    def unpin(self, places: Sequence[tuple[int, int]]) -> None:
        """Ends pins."""
        arena = self.arena
        with self._lock:
            for place in places if arena is not None else ():
                arena.unpin(place)  # type: ignore[union-attr] # not None, or there are no places

    @property
    def arena(self) -> MemoryTier | None:
        """The tier that readers on this host may map."""
        first = self._tiers[0].storage
        return first if isinstance(first, MemoryTier) else None

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Bytes and pages of each tier; never waits for a running call."""
        return {tier.name: (tier.index.used, len(tier.index)) for tier in self._tiers}

    def close(self) -> None:
        """Moves pages from memory to the next tiers, and closes all tiers."""
        with self._lock:
            if self.arena is not None and len(self._tiers) > 1:
                for key in self._tiers[0].index:
                    self._evict(0, key, "ended", demote=True)
            for tier in self._tiers:
                tier.storage.close()

    def _holds(self, key: bytes) -> bool:
        for tier in self._tiers:
            if key in tier.index:
                return not tier.index.expired(key)
            if tier.storage.shared and tier.storage.read(key) is not None:
                return True
        return False

    def _read(self, tier: IndexedTier, key: bytes) -> tuple[Header, bytes] | None:
        if key in tier.index and tier.index.expired(key):
            self._forget(tier, key, "ttl")
            return None
        if key not in tier.index and not tier.storage.shared:
            return None
        if (blob := tier.storage.read(key)) is None:
            tier.index.drop(key)
            return None
        try:
            header, data = open_blob(key, blob)
        except DamagedPage:
            self._forget(tier, key, "damaged")
            return None
        if self._is_expired(header) or self._is_erased(header):
            self._forget(tier, key, "ttl")
            return None
        return header, data

    def _forget(self, tier: IndexedTier, key: bytes, cause: str) -> None:
        tier.index.drop(key)
        tier.storage.remove(key)
        EVICTED.labels(tier.name, cause).inc()

    def _pin(self, key: bytes) -> tuple[int, int] | None:
        return self.arena.pin(key) if self.arena is not None else None

    def _place(self, level: int, key: bytes, header: Header, blob: bytes) -> bool:
        """Writes a page to the first tier from ``level`` on that has room for it."""
        for lower in range(level, len(self._tiers)):
            tier = self._tiers[lower]
            if key in tier.index:
                return True
            if tier.index.fits(header) and self._write(lower, key, header, blob):
                tier.index.add(key, header)
                STORED.labels(tier.name).inc(len(blob))
                return True
        return False

    def _write(self, level: int, key: bytes, header: Header, blob: bytes) -> bool:
        """Writes a page and makes room for it; evicts further pages if the arena's room is fragmented or pinned."""
        tier = self._tiers[level]
        self._make_room(level, header, demote=True)
        tries = 0
        while not tier.storage.write(key, blob):
            tries += 1
            if tier.storage is not self.arena or not len(tier.index) or tries > 64:
                return False
            self._evict(level, tier.index.least(), "quota", demote=True)
        return True

    def _make_room(self, level: int, header: Header, *, demote: bool) -> None:
        while (excess := self._tiers[level].index.excess(header)) is not None:
            self._evict(level, *excess, demote=demote)

    def _evict(self, level: int, key: bytes, cause: str, *, demote: bool) -> None:
        tier = self._tiers[level]
        page = self._read(tier, key) if demote and level + 1 < len(self._tiers) else None
        if key in tier.index:
            tier.index.evict(key)
            tier.storage.remove(key)
            EVICTED.labels(tier.name, cause).inc()
        if page is not None:
            header, data = page
            self._place(level + 1, key, header, header.pack() + data)


def _stored_headers(tier: IndexedTier) -> Iterator[tuple[bytes, Header]]:
    for key, blob in tier.storage.stored():
        with suppress(DamagedPage):
            yield key, Header.read(blob)
