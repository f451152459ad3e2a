"""Moves of keys and values by the compiled library, where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int, c_int32, c_int64, c_void_p
from functools import cache

from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, brief, library
from outrider.kernels.pool import KvPool

Move = Callable[[KvPool, Sequence[int], Sequence[int]], None]
"""Has each of some places (slots) of a packed or float32 pool on the CPU what was at its source before."""


@cache
def native_move() -> Move | None:
    """The moves; None where they cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return move_of(library())
    except NativeUnavailable:
        return None


def move_of(loaded: ctypes.CDLL) -> Move:
    """The function of a library."""
    call = brief(loaded).outrider_move
    call.argtypes = (
        *(c_void_p, c_int64, c_int64, c_int32, c_int32, c_int32, c_int, c_int64),
        *(POINTER(c_int64), POINTER(c_int64)),
    )

    def move(pool: KvPool, sources: Sequence[int], places: Sequence[int]) -> None:
        data, slots = pool.data, c_int64 * len(sources)
        shape = data.shape[0], data.stride(0), pool.page_size, pool.kv_heads, pool.head_dim, pool.packed
        call(data.data_ptr(), *shape, len(sources), slots(*sources), slots(*places))

    return move
