"""Memory in huge pages, for which the CPU looks up fewer addresses in a step."""

from __future__ import annotations

import mmap
from contextlib import suppress

import torch
from torch import Tensor

HUGE = 2 << 20
"""Bytes of a huge page; small pages have 4 KiB."""
CHUNK = 32 << 20
"""Bytes that an arena maps for small pieces."""
ALONE = CHUNK // 4
"""Bytes of a piece from which on it has a mapping of its own."""
LINE = 64


def map_zeros(size: int, huge: int = HUGE) -> Tensor:
    """Zeros that begin at a page, a huge one where Linux allows it (``madvise`` or ``always``), else a small one.

    The mapping is private. Each page takes memory when it is first touched; all are freed with the last tensor that
    shares the mapping.

    Args:
        size: bytes.
        huge: bytes of a huge page.

    Returns:
        uint8 [size].

    Raises:
        MemoryError: the system refuses so much.
    """
    try:
        mapping = mmap.mmap(-1, _round_up(size, huge) + huge, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes of memory cannot be allocated: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(mapping, dtype=torch.uint8)
    return memory[-memory.data_ptr() % huge :][:size]


class Arena:
    """Allocates pieces of `map_zeros` memory one behind the other, so that small pieces share huge pages."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """Zeros, uint8 [size], aligned to a cache line; the memory lives as long as any piece of its mapping.

        Raises:
            MemoryError: the system refuses the mapping.
        """
        whole = _round_up(size, LINE)
        if whole >= ALONE:
            return map_zeros(size)
        if whole > len(self._rest):
            self._rest = map_zeros(CHUNK)
        piece, self._rest = self._rest[:size], self._rest[whole:]
        return piece


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
