"""The tier in memory: one file in /dev/shm, which verifiers on this host may map to read pages in place."""

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
"""Size of an arena over its capacity, so that pages of several sizes find room in one piece."""


class MemoryTier:
    """Pages in shared memory, by plug-in name ``memory``. Room that becomes free is overwritten with zeros.

    Readers find the arena by its path and identify it by the random token at its beginning. Only this user can read it.
    Option ``directory`` (`/dev/shm`): directory of the file.

    Attributes:
        path: path of the arena.
        token: first bytes of the arena.

    Raises:
        TierError: the directory does not exist, or has too little room.
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
        """See `Tier`; the room of a pinned page becomes free when its last pin ends."""
        if (place := self._places.pop(key, None)) is None:
            return
        if self._pins[place]:
            self._leaving.add(place)
        else:
            self._give(place)

    def pin(self, key: bytes) -> tuple[int, int] | None:
        """Keeps a page in place until `unpin`; None for an unknown page."""
        if (place := self._places.get(key)) is not None:
            self._pins[place] += 1
        return place

    def unpin(self, place: tuple[int, int]) -> None:
        """Ends `pin`."""
        self._pins[place] -= 1
        if not self._pins[place] and place in self._leaving:
            self._leaving.discard(place)
            self._give(place)

    def _give(self, place: tuple[int, int]) -> None:
        self._map[_slice(place)] = bytes(place[1])
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
    """Offset of a page's data in the arena's file."""
    return TOKEN_BYTES + place[0] + HEADER_BYTES


def _slice(place: tuple[int, int]) -> slice:
    return slice(TOKEN_BYTES + place[0], TOKEN_BYTES + sum(place))


def _sweep(directory: Path) -> None:
    """Removes arenas of killed processes: their locks are free."""
    for path in directory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _map(path: Path, size: int) -> tuple[BinaryIO, mmap.mmap]:
    """Creates and maps a file of ``size`` allocated bytes, locked as long as this process lives."""
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
