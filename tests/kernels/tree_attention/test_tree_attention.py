"""Attention over ragged steps against the definition, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import CpuPlan, Tiling, reference
from torch import Tensor

_PAGE_SIZE, _PAGES = 8, 120
_TILINGS = [None, Tiling(4, 16, 192, 128), Tiling(16, 32, 128, 64), Tiling(1, 1, 9, 8)]


@st.composite
def steps(draw: st.DrawFn) -> RaggedBatch:
    """One to three sequences: chunks, trees, trees half grown; pages consecutive or not."""
    free = list(range(_PAGES))
    if draw(st.booleans()):
        free = draw(st.permutations(free))
    sequences = []
    for _ in range(draw(st.integers(1, 3))):
        context, nodes = draw(st.integers(0, 150)), draw(st.integers(1, 40))
        pages = [free.pop(0) for _ in range(-(-(context + nodes) // _PAGE_SIZE))]
        if draw(st.booleans()):
            parents = [draw(st.integers(max(-1, node - 9), node - 1)) for node in range(nodes)]
            sequences.append(SequenceRows(draw(st.integers(1, nodes)), context, pages, parents))
        else:
            sequences.append(SequenceRows(nodes, context, pages))
    return RaggedBatch.build(sequences, _PAGE_SIZE)


def filled_pool(kv_heads: int, head_dim: int, batch: RaggedBatch) -> KvPool:
    """A pool that is NaN wherever no sequence of the step has a token."""
    pool = KvPool(2, _PAGES, _PAGE_SIZE, kv_heads, head_dim)
    values = torch.randn(pool.data.shape, generator=torch.Generator().manual_seed(1))
    pool.data.fill_(float("nan"))
    for s in batch.sequences:
        slots = [s.pages[i // _PAGE_SIZE] * _PAGE_SIZE + i % _PAGE_SIZE for i in range(s.context + s.nodes)]
        pool.data[:, slots] = values[:, slots]
    return pool


def attend(
    queries: Tensor, batch: RaggedBatch, pool: KvPool, tiling: Tiling | None, window: int | None = None
) -> Tensor:
    plan = CpuPlan(batch, pool, queries.shape[1], torch.float32, tiling, (None, window))
    plan.queries.copy_((queries * plan.scale).view(torch.complex64).view(plan.queries.shape))
    return plan.attend(1).view(queries.shape)


@pytest.mark.parametrize("tiling", _TILINGS)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(2, 2, 8), (6, 2, 20), (5, 1, 6)])
@settings(max_examples=8, deadline=None)
@given(batch=steps())
def test_every_row_attends_to_its_context_and_path_alone(
    heads: int, kv_heads: int, head_dim: int, tiling: Tiling | None, batch: RaggedBatch
) -> None:
    queries = torch.randn(batch.rows, heads, head_dim, generator=torch.Generator().manual_seed(2)) * 2
    pool = filled_pool(kv_heads, head_dim, batch)
    expected = reference.tree_attention(queries, pool, 1, batch, head_dim**-0.5)
    torch.testing.assert_close(attend(queries, batch, pool, tiling).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tiling", _TILINGS)
@pytest.mark.parametrize("window", [1, 5, 64, 100])
@settings(max_examples=8, deadline=None)
@given(batch=steps())
def test_a_row_with_a_window_attends_to_its_latest_positions_alone(
    window: int, tiling: Tiling | None, batch: RaggedBatch
) -> None:
    queries = torch.randn(batch.rows, 4, 8, generator=torch.Generator().manual_seed(2)) * 2
    pool = filled_pool(2, 8, batch)
    expected = reference.tree_attention(queries, pool, 1, batch, 8**-0.5, window)
    torch.testing.assert_close(attend(queries, batch, pool, tiling, window).double(), expected, atol=1e-5, rtol=1e-5)


def test_layers_with_and_without_a_window_share_a_plan() -> None:
    batch = RaggedBatch.build([SequenceRows(3, 140, range(20))], _PAGE_SIZE)
    queries, pool = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(2)), filled_pool(1, 8, batch)
    plan = CpuPlan(batch, pool, 2, torch.float32, None, (None, 7))
    plan.queries.copy_((queries * plan.scale).view(torch.complex64).view(plan.queries.shape))
    for layer, window in ((0, None), (1, 7), (0, None)):
        expected = reference.tree_attention(queries, pool, layer, batch, 8**-0.5, window)
        torch.testing.assert_close(plan.attend(layer).view(queries.shape).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tiling", _TILINGS)
def test_a_tree_of_more_nodes_than_a_block_holds_is_no_trouble(tiling: Tiling | None) -> None:
    parents = [-1, 0, *[1] * 140, 60, 142]
    batch = RaggedBatch.build([SequenceRows(144, 125, range(40), parents)], _PAGE_SIZE)
    queries, pool = torch.randn(144, 2, 8, generator=torch.Generator().manual_seed(2)), filled_pool(1, 8, batch)
    expected = reference.tree_attention(queries, pool, 1, batch, 8**-0.5)
    torch.testing.assert_close(attend(queries, batch, pool, tiling).double(), expected, atol=1e-5, rtol=1e-5)


def test_scores_too_large_for_an_exponential_are_no_trouble() -> None:
    batch = RaggedBatch.build([SequenceRows(3, 4, [0])], _PAGE_SIZE)
    pool = filled_pool(1, 8, batch)
    queries = torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(2)) * 1e4
    for tiling in _TILINGS:
        assert attend(queries, batch, pool, tiling).isfinite().all()


def test_the_result_may_be_in_half_precision() -> None:
    batch = RaggedBatch.build([SequenceRows(3, 4, [0])], _PAGE_SIZE)
    plan = CpuPlan(batch, filled_pool(1, 8, batch), 2, torch.bfloat16)
    assert plan.attend(0).dtype == torch.bfloat16
