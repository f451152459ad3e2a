"""kv_compact in plain torch: all sources are read before any destination is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.kernels.pool import KvPool


def kv_compact(pool: KvPool, pages: Sequence[int], context: int, kept_rows: Sequence[int]) -> None:
    """Moves the keys and values at ``context + kept_rows[j]`` to ``context + j``, in all layers.

    A destination may be another row's source; each gets what was there before the call.

    Args:
        pool: pages of keys and values, changed in place.
        pages: the sequence's page ids.
        context: tokens in front of the rows.
        kept_rows: rows in their new order, counted from ``context``.

    Raises:
        ValueError: a row is below zero or beyond the pages.
    """
    moves = [(row, place) for place, row in enumerate(kept_rows) if row != place]
    if not moves:
        return
    room = len(pages) * pool.page_size - context
    if min(kept_rows) < 0 or max(*kept_rows, len(kept_rows) - 1) >= room:
        raise ValueError(f"rows {list(kept_rows)} behind {context} tokens do not lie in {len(pages)} pages")
    sources, places = (
        torch.tensor([_slot(pages, context + row, pool.page_size) for row in rows], device=pool.data.device)
        for rows in zip(*moves, strict=True)
    )
    pool.data[:, places] = pool.data[:, sources]


def _slot(pages: Sequence[int], token: int, page_size: int) -> int:
    return pages[token // page_size] * page_size + token % page_size
