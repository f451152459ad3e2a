"""Moves of keys and values on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from outrider.native.library import Library, address, at, ffi
from torch import Tensor


class Pool(Protocol):
    """Pages of keys and values on a CPU, in float32 or packed (see `outrider.kernels.pool.KvPool`)."""

    data: Tensor
    pages: int
    page_size: int
    kv_heads: int
    head_dim: int
    packed: bool


Move = Callable[[Pool, Sequence[int], Sequence[int]], None]
"""Moves tokens of a pool: each place (slot) gets what was at its source before the call."""


def pool_of(pool: Pool) -> dict[str, Any]:
    """A pool as the fields of ``outrider_pool``."""
    return {
        "data": address(pool.data),
        "layer_stride": pool.data.stride(0),
        "layers": pool.data.shape[0],
        "pages": pool.pages,
        "page_size": pool.page_size,
        "kv_heads": pool.kv_heads,
        "head_dim": pool.head_dim,
        "is_bf16": pool.packed,
    }


def move_of(library: Library) -> Move:
    """The function of a library."""
    call = library.brief("outrider_move")

    def move(pool: Pool, sources: Sequence[int], places: Sequence[int]) -> None:
        inner = ffi.new("outrider_pool *", pool_of(pool))
        slots = ffi.new("int64_t[]", sources), ffi.new("int64_t[]", places)
        call(at(inner), len(sources), *map(at, slots))

    return move
