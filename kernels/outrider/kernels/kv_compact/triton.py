"""kv_compact as a Triton kernel: each program moves some columns of one layer, for all moves of a sequence."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.kv_compact import MOST_MOVES
from outrider.kernels.launch import Config, launch
from outrider.kernels.pool import KvPool
from torch import Tensor

_BLOCK = 64


@triton.jit(do_not_specialize=["pool_slots"], do_not_specialize_on_alignment=["offsets", "sources", "places"])
def _kv_compact(
    data, offsets, sources, places, pool_slots, WIDTH: tl.constexpr, MOST_MOVES: tl.constexpr, BLOCK: tl.constexpr
):
    # One program: all moves of a sequence, for BLOCK columns of one layer, [MOST_MOVES, BLOCK] in registers. Reading
    # all before writing any is what lets a slot be the source of one move and the place of another.
    sequence, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first, end = tl.load(offsets + sequence), tl.load(offsets + sequence + 1)
    tl.device_assert((first <= end) & (end - first <= MOST_MOVES), "a sequence has too many moves")
    move = first + tl.arange(0, MOST_MOVES)
    source = tl.load(sources + move, move < end, other=-1)
    place = tl.load(places + move, move < end, other=-1)
    real = (source >= 0) & (source != place)
    tl.device_assert((source < pool_slots) & (place < pool_slots) & ((place >= 0) | (source < 0)), "no such slot")
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = real[:, None] & (column < WIDTH)[None, :]
    start = layer * pool_slots
    values = tl.load(data + (start + source[:, None]) * WIDTH + column[None, :], inside, other=0)
    tl.debug_barrier()
    tl.store(data + (start + place[:, None]) * WIDTH + column[None, :], values, inside)


def kv_compact_batch(pool: KvPool, offsets: Tensor, sources: Tensor, places: Tensor) -> None:
    """See `outrider.kernels.kv_compact`. Rows are moved as they are, four bytes at a time.

    The barrier makes every warp of a program wait until all have read, so that a row's destination may be another's
    source.

    Raises:
        ValueError: a list of slots or the offsets have the wrong shape or dtype.
    """
    if offsets.dim() != 1 or len(offsets) < 1 or offsets.dtype != torch.int32 or not offsets.is_contiguous():
        raise ValueError(f"offsets are {offsets.dtype} {tuple(offsets.shape)}; int32 [sequences + 1] it is")
    for name, slots in (("sources", sources), ("places", places)):
        if slots.dim() != 1 or slots.shape != sources.shape or slots.dtype != torch.int64 or not slots.is_contiguous():
            raise ValueError(f"{name} are {slots.dtype} {tuple(slots.shape)}; int64 [moves] it is, as many of each")
    for part in (pool.data,) if pool.scales is None else (pool.data, pool.scales):
        words = part.flatten(2).view(torch.int32)
        layers, pool_slots, width = words.shape
        lists = {"offsets": offsets, "sources": sources, "places": places}
        grid = (len(offsets) - 1, layers, triton.cdiv(width, _BLOCK))
        constants = {"WIDTH": width, "MOST_MOVES": MOST_MOVES, "BLOCK": _BLOCK}
        launch(_kv_compact, grid, {"data": words, **lists, "pool_slots": pool_slots}, constants, Config(warps=4))
