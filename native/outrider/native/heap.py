"""The memory that the C library keeps for later allocations."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_memory_back() -> None:
    """Gives freed memory back to the system (glibc's ``malloc_trim``); does nothing with another C library."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
