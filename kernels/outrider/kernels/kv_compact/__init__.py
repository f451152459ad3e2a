"""kv_compact: moves keys and values of a verified tree's accepted rows to the end of the sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from outrider.kernels.backend import compiled, takes_triton
from outrider.kernels.kv_compact import cpu
from outrider.kernels.pool import KvPool
from outrider.native.moves import Move, move_of
from torch import Tensor

__all__ = ["MOST_MOVES", "Kept", "kv_compact", "kv_compact_batch"]

MOST_MOVES = 64
"""Moves of one sequence that a Triton kernel holds at once."""


class Kept(NamedTuple):
    """A sequence's accepted rows.

    Attributes:
        pages: ids of its pages.
        context: tokens in front of the rows.
        rows: rows in their new order, counted from ``context``.
    """

    pages: Sequence[int]
    context: int
    rows: Sequence[int]


def kv_compact(pool: KvPool, kept: Iterable[Kept]) -> None:
    """Moves the keys and values of each sequence's accepted rows behind its context, in all layers.

    A destination may be another row's source; each source is read before any destination is written. All sequences
    are moved together, by one copy of the places and one kernel.

    Args:
        pool: pages of keys and values, changed in place.
        kept: of each sequence. No two sequences share a page that rows lie in.

    Raises:
        ValueError: a row is below zero or beyond the pages; nothing is moved.
    """
    moves = [own for each in kept if (own := _moves(each, pool.page_size))]
    if not moves:
        return
    device = pool.data.device
    slots = [list(each) for each in zip(*(move for own in moves for move in own), strict=True)]
    plain = pool.dtype in (torch.float32, torch.int8) and device.type == "cpu" and not takes_triton(device)
    if (pool.packed or plain) and (move := native_move()):
        move(pool, *slots)
        return
    sources, places = torch.tensor(slots, device=device)
    if takes_triton(device) and max(map(len, moves)) <= MOST_MOVES:
        offsets = torch.tensor([0, *accumulate(map(len, moves))], dtype=torch.int32, device=device)
        kv_compact_batch(pool, offsets, sources, places)
    else:
        cpu.move(pool, sources, places)


def kv_compact_batch(pool: KvPool, offsets: Tensor, sources: Tensor, places: Tensor) -> None:
    """Moves the keys and values of many sequences in all layers: what is at ``sources[j]`` goes to ``places[j]``.

    A destination may be another source of the same sequence, since each source is read before any destination is
    written. It may not be another sequence's source, and no two destinations may be the same.

    Args:
        pool: pages of keys and values, changed in place.
        offsets: int32 [sequences + 1] on the pool's device: moves ``offsets[i]`` to ``offsets[i + 1] - 1`` are
            sequence i's, at most `MOST_MOVES`. Moves from the last offset on are ignored.
        sources: int64 [n] slots on the pool's device; -1 moves nothing.
        places: int64 [n] slots.
    """
    if takes_triton(pool.data.device):
        from outrider.kernels.kv_compact import triton

        triton.kv_compact_batch(pool, offsets, sources, places)
    else:
        count = int(offsets[-1])
        cpu.move(pool, sources[:count], places[:count])


def native_move() -> Move | None:
    """The compiled library's function that moves tokens; None where there is none."""
    return None if (library := compiled()) is None else move_of(library)


def _moves(kept: Kept, page_size: int) -> list[tuple[int, int]]:
    """The slots that rows are read from and written to."""
    pages, context, rows = kept
    if not rows:
        return []
    room = len(pages) * page_size - context
    if min(rows) < 0 or max(*rows, len(rows) - 1) >= room:
        raise ValueError(f"rows {list(rows)} behind {context} tokens do not lie in {len(pages)} pages")

    def slot(token: int) -> int:
        return pages[token // page_size] * page_size + token % page_size

    return [(slot(context + row), slot(context + place)) for place, row in enumerate(rows) if row != place]
