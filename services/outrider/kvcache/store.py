"""All tiers of an instance as one store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.kvcache.arena import MemoryTier, data_offset
from outrider.kvcache.blob import Damaged, Header, open_blob
from outrider.kvcache.index import Index
from outrider.kvcache.metrics import EVICTED, STORED
from outrider.kvcache.tiers import Tier

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Shelf:
    """A tier and its index."""

    name: str
    tier: Tier
    index: Index


@dataclass(frozen=True, slots=True)
class Found:
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

    def __init__(self, shelves: Sequence[Shelf], clock: Clock = time.time) -> None:
        self._shelves, self._clock = shelves, clock
        self._lock = threading.Lock()

    def recover(self) -> None:
        """Adds the pages that tiers hold from an earlier process. Their data is checked when it is read."""
        with self._lock:
            for level, shelf in enumerate(self._shelves):
                for key, blob in list(shelf.tier.stored()):
                    self._recover(level, key, blob)

    def _recover(self, level: int, key: bytes, blob: bytes) -> None:
        shelf = self._shelves[level]
        try:
            header = Header.read(blob)
        except Damaged:
            self._forget(shelf, key, "damaged")
            return
        if not shelf.index.fits(header):
            self._forget(shelf, key, "quota")
            return
        self._make_room(level, header, demote=False)
        shelf.index.add(key, header)

    def leading(self, keys: Sequence[bytes]) -> int:
        """Number of leading ``keys`` that the store holds."""
        with self._lock:
            for count, key in enumerate(keys):
                if not self._holds(key):
                    return count
        return len(keys)

    def put(self, key: bytes, header: Header, data: bytes) -> bool:
        """Stores a page; False if it was held before or finds no room. `Damaged` if the checksum is wrong."""
        blob = header.pack() + data
        open_blob(key, blob)
        with self._lock:
            if any(key in shelf.index for shelf in self._shelves):
                return False
            return self._place(0, key, header, blob)

    def get(self, key: bytes, *, pin: bool = False) -> Found | None:
        """The page; None if the store lacks it. With ``pin``, a page in the arena stays in place until `unpin`."""
        with self._lock:
            for level, shelf in enumerate(self._shelves):
                if (page := self._read(shelf, key)) is not None:
                    header, data = page
                    shelf.index.touch(key)
                    if level and key not in self._shelves[0].index:
                        self._place(0, key, header, header.pack() + data)
                    place = self._pin(key) if pin else None
                    return Found(header, shelf.name, b"" if place else data, place)
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
        first = self._shelves[0].tier
        return first if isinstance(first, MemoryTier) else None

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Bytes and pages of each tier; never waits for a running call."""
        return {shelf.name: (shelf.index.used, len(shelf.index)) for shelf in self._shelves}

    def close(self) -> None:
        """Moves pages from memory to the next tiers, and closes all tiers."""
        with self._lock:
            if self.arena is not None and len(self._shelves) > 1:
                for key in self._shelves[0].index:
                    self._evict(0, key, "ended", demote=True)
            for shelf in self._shelves:
                shelf.tier.close()

    def _holds(self, key: bytes) -> bool:
        for shelf in self._shelves:
            if key in shelf.index:
                return not shelf.index.expired(key)
            if shelf.tier.shared and shelf.tier.read(key) is not None:
                return True
        return False

    def _read(self, shelf: Shelf, key: bytes) -> tuple[Header, bytes] | None:
        if key in shelf.index and shelf.index.expired(key):
            self._forget(shelf, key, "ttl")
            return None
        if key not in shelf.index and not shelf.tier.shared:
            return None
        if (blob := shelf.tier.read(key)) is None:
            shelf.index.drop(key)
            return None
        try:
            header, data = open_blob(key, blob)
        except Damaged:
            self._forget(shelf, key, "damaged")
            return None
        if header.expires <= self._clock():
            self._forget(shelf, key, "ttl")
            return None
        return header, data

    def _forget(self, shelf: Shelf, key: bytes, cause: str) -> None:
        shelf.index.drop(key)
        shelf.tier.remove(key)
        EVICTED.labels(shelf.name, cause).inc()

    def _pin(self, key: bytes) -> tuple[int, int] | None:
        return self.arena.pin(key) if self.arena is not None else None

    def _place(self, level: int, key: bytes, header: Header, blob: bytes) -> bool:
        """Writes a page to the first tier from ``level`` on that has room for it."""
        for below in range(level, len(self._shelves)):
            shelf = self._shelves[below]
            if key in shelf.index:
                return True
            if shelf.index.fits(header) and self._write(below, key, header, blob):
                shelf.index.add(key, header)
                STORED.labels(shelf.name).inc(len(blob))
                return True
        return False

    def _write(self, level: int, key: bytes, header: Header, blob: bytes) -> bool:
        """Writes a page and makes room for it; evicts further pages if the arena's room is fragmented or pinned."""
        shelf = self._shelves[level]
        self._make_room(level, header, demote=True)
        tries = 0
        while not shelf.tier.write(key, blob):
            tries += 1
            if shelf.tier is not self.arena or not len(shelf.index) or tries > 64:
                return False
            self._evict(level, shelf.index.least(), "quota", demote=True)
        return True

    def _make_room(self, level: int, header: Header, *, demote: bool) -> None:
        while (excess := self._shelves[level].index.excess(header)) is not None:
            self._evict(level, *excess, demote=demote)

    def _evict(self, level: int, key: bytes, cause: str, *, demote: bool) -> None:
        shelf = self._shelves[level]
        page = self._read(shelf, key) if demote and level + 1 < len(self._shelves) else None
        if key in shelf.index:
            shelf.index.evict(key)
            shelf.tier.remove(key)
            EVICTED.labels(shelf.name, cause).inc()
        if page is not None:
            header, data = page
            self._place(level + 1, key, header, header.pack() + data)
