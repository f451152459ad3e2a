"""The tier in memory: one file in /dev/shm, which verifiers on this host may map to read pages where they lie."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from outrider.kvcache.blob import HEADER_BYTES
from outrider.kvcache.extents import Extents
from outrider.kvcache.tiers import TierContext, TierError, no_options

TOKEN_BYTES = 32
_PREFIX = "outrider-kv-"
_SLACK = 1.25
"""An arena has more room than pages may take, so that pages of several sizes find theirs in one piece."""


class MemoryTier:
    """Pages in shared memory, by plug-in name ``memory``.

    Readers find the arena by its path and know by the random token it begins with that it is this one. It is readable
    by this user alone. Option ``directory`` (`/dev/shm`) says where the file is.

    Attributes:
        path: of the arena.
        token: its first bytes.

    Raises:
        TierError: there is no such directory, or no such room.
    """

    shared = False

    def __init__(self, context: TierContext) -> None:
        options = dict(context.options)
        directory = Path(options.pop("directory", "/dev/shm"))
        no_options("memory", options)
        _sweep(directory)
        self.path = directory / f"{_PREFIX}{context.instance}-{secrets.token_hex(8)}"
        self.token = secrets.token_bytes(TOKEN_BYTES)
        size = int(context.capacity * _SLACK) + (1 << 16)
        self._file, self._map = _map(self.path, size)
        self._map[:TOKEN_BYTES] = self.token
        self._room = Extents(size - TOKEN_BYTES)
        self._places: dict[bytes, tuple[int, int]] = {}
        self._pins: Counter[tuple[int, int]] = Counter()
        self._leaving: set[tuple[int, int]] = set()

    def write(self, key: bytes, blob: bytes) -> bool:
        """See `Tier`."""
        self.remove(key)
        start = self._room.take(len(blob))
        if start is None:
            return False
        place = self._places[key] = (start, len(blob))
        self._map[_slice(place)] = blob
        return True

    def read(self, key: bytes) -> bytes | None:
        """See `Tier`."""
        place = self._places.get(key)
        return None if place is None else self._map[_slice(place)]

    def remove(self, key: bytes) -> None:
        """See `Tier`; the room of what a reader has pinned is free when that ends."""
        if (place := self._places.pop(key, None)) is None:
            return
        if self._pins[place]:
            self._leaving.add(place)
        else:
            self._room.give(*place)

    def pin(self, key: bytes) -> tuple[int, int] | None:
        """Keeps a page where it is until `unpin`; None where there is none."""
        if (place := self._places.get(key)) is not None:
            self._pins[place] += 1
        return place

    def unpin(self, place: tuple[int, int]) -> None:
        """Ends `pin`."""
        self._pins[place] -= 1
        if not self._pins[place] and place in self._leaving:
            self._leaving.discard(place)
            self._room.give(*place)

    def stored(self) -> Iterable[tuple[bytes, bytes]]:
        """See `Tier`."""
        return ()

    def close(self) -> None:
        """See `Tier`."""
        self.path.unlink(missing_ok=True)
        self._map.close()
        self._file.close()


def data_offset(place: tuple[int, int]) -> int:
    """Where in the arena's file a page's data begins."""
    return TOKEN_BYTES + place[0] + HEADER_BYTES


def _slice(place: tuple[int, int]) -> slice:
    return slice(TOKEN_BYTES + place[0], TOKEN_BYTES + sum(place))


def _sweep(directory: Path) -> None:
    """Removes arenas whose processes were killed: nobody holds their locks any more."""
    for path in directory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _map(path: Path, size: int) -> tuple[BinaryIO, mmap.mmap]:
    """A new file of ``size`` bytes that are there for certain, locked for as long as this process lives."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise TierError(f"kvcache.options.memory.directory: {path.parent}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.posix_fallocate(handle, 0, size)
        return os.fdopen(handle, "rb"), mmap.mmap(handle, size)
    except OSError as error:
        os.close(handle)
        path.unlink(missing_ok=True)
        raise TierError(f"kvcache.quotas.memory: {path.parent}: no room for {size} bytes: {error.strerror}") from None
