"""Moves of keys and values on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from outrider.native.library import Library, checked, data_pointer, ffi, pointer_value
from torch import Tensor


class PagePool(Protocol):
    """Pages of keys and values on a CPU, in float32, int8 or packed (see `outrider.kernels.pool.KvPool`)."""

    data: Tensor
    scales: Tensor | None
    pages: int
    page_size: int
    kv_heads: int
    head_dim: int
    packed: bool


Move = Callable[[PagePool, Sequence[int], Sequence[int]], None]
"""Moves tokens of a pool: each place (slot) gets the token that was at its source before the call.

Moves none and raises `MemoryError` where there is no memory to hold them."""


def pool_fields(pool: PagePool) -> dict[str, Any]:
    """The fields of an ``outrider_pool`` for a pool."""
    return {
        "data": data_pointer(pool.data),
        "layer_stride": pool.data.stride(0),
        "layers": pool.data.shape[0],
        "pages": pool.pages,
        "page_size": pool.page_size,
        "kv_heads": pool.kv_heads,
        "head_dim": pool.head_dim,
        "scales": ffi.NULL if pool.scales is None else ffi.cast("float *", pool.scales.data_ptr()),
        "packed": pool.packed,
    }


@cache
def move_of(library: Library) -> Move:
    """The library's function that moves tokens."""
    call = library.brief_function("outrider_move")

    def move(pool: PagePool, sources: Sequence[int], places: Sequence[int]) -> None:
        inner = ffi.new("outrider_pool *", pool_fields(pool))
        slots = ffi.new("int64_t[]", sources), ffi.new("int64_t[]", places)
        checked(call(pointer_value(inner), len(sources), *map(pointer_value, slots)))

    return move
