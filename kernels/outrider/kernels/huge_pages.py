"""Memory in huge pages: a step that reads much of it has the CPU look up few addresses."""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch
from torch import Tensor

HUGE = 2 << 20
"""Bytes of a huge page, where small ones have 4 KiB."""
CHUNK = 32 << 20
"""Bytes that an arena maps for small pieces."""
ALONE = CHUNK // 4
"""Bytes of a piece from which on it has a mapping of its own."""
LINE = 64


def mapped(size: int, huge: int = HUGE) -> Tensor:
    """Zeros that begin with a page, which is a huge one if Linux has any (``madvise`` or ``always``), else a small one.

    They are this process's own, take memory from when they are first touched, a page at a time, and give it back with
    the last tensor that shares them.

    Args:
        size: bytes.
        huge: bytes of a huge page.

    Returns:
        uint8 [size].

    Raises:
        MemoryError: the system refuses so much.
    """
    try:
        room = mmap.mmap(-1, _up(size, huge) + huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes of memory cannot be had: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            room.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(room, dtype=torch.uint8)
    return memory[-memory.data_ptr() % huge :][:size]


class Arena:
    """Hands out pieces of `mapped` memory one behind the other, so that small ones share huge pages."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """Zeros, uint8 [size], from a cache line's beginning on; the memory lives as long as any piece of its mapping.

        Raises:
            MemoryError: the system refuses so much.
        """
        whole = _up(size, LINE)
        if whole >= ALONE:
            return mapped(size)
        if whole > len(self._rest):
            self._rest = mapped(CHUNK)
        taken, self._rest = self._rest[:size], self._rest[whole:]
        return taken


def _up(size: int, to: int) -> int:
    return -(-size // to) * to
