"""Accepted rows move to the end of the sequence."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from outrider.kernels.kv_compact import Kept, kv_compact
from outrider.kernels.pool import KvPool


def numbered_pool() -> KvPool:
    pool = KvPool(layers=2, pages=6, page_size=4, kv_heads=1, head_dim=2)
    pool.data.copy_(torch.arange(pool.data.numel()).view(pool.data.shape))
    return pool


@given(st.data())
def test_each_kept_row_is_found_at_its_new_place_and_nothing_else_has_moved(data: st.DataObject) -> None:
    pages, kept = data.draw(st.permutations(range(6))), []
    for own in (pages[:4], pages[4:]):
        context = data.draw(st.integers(0, 4 * len(own) - 4))
        rows = data.draw(st.permutations(range(4 * len(own) - context)))
        kept.append(Kept(own, context, rows[: data.draw(st.integers(0, 6))]))
    pool, before = numbered_pool(), numbered_pool()
    kv_compact(pool, kept)
    expected = before.data.clone()
    for own, context, rows in kept:
        slots = [page * 4 + offset for page in own for offset in range(4)]
        for place, row in enumerate(rows):
            expected[:, slots[context + place]] = before.data[:, slots[context + row]]
    assert torch.equal(pool.data, expected)


@pytest.mark.parametrize("rows", [[0, 4], [-1], [3, 2, 1, 0, 0]])
def test_rows_outside_the_pages_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="do not lie in 1 pages"):
        kv_compact(numbered_pool(), [Kept([0], 0, rows)])
