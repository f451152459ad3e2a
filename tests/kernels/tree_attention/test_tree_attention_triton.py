"""The attention kernels over ragged steps: against the definition in float64, and against themselves bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_quant import reference as kv_quant
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import reference
from outrider.kernels.tree_attention.tables import Capacity
from outrider.kernels.tree_attention.triton import TritonPlan
from torch import Tensor

from tests.kernels.device import DEVICE, noise, poison

CHAIN = range(-1, 63)
STAR = [-1] * 64
BUSHY = [-1, 0, 0, 1, 1, 2, 3, 3, 0, 8]


def pages(tokens: int, size: int, offset: int = 0) -> list[int]:
    """Pages for some tokens, in no order, of every second page of the pool."""
    return [(7 * i + 3) % 89 * 2 + offset for i in range(-(-tokens // size))]


def sequence(
    rows: int, context: int, size: int = 16, *, parents: Sequence[int] | None = None, offset: int = 0
) -> SequenceRows:
    return SequenceRows(rows, context, pages(context + len(parents or range(rows)), size, offset), parents)


def filled_pool(
    batch: RaggedBatch, kv_heads: int = 2, head_dim: int = 64, dtype: torch.dtype = torch.float32
) -> KvPool:
    """A pool that is NaN wherever no sequence of the step has a token; a token's values depend on its place in it."""
    pool = KvPool(2, 180, batch.page_size, kv_heads, head_dim, dtype, DEVICE)
    pool.data.fill_(float("nan"))
    for number, s in enumerate(batch.sequences):
        slots = [
            s.pages[i // batch.page_size] * batch.page_size + i % batch.page_size for i in range(s.context + s.nodes)
        ]
        pool.data[:, slots] = noise(2, len(slots), 2, kv_heads, head_dim, seed=number).to(dtype)
    return pool


def attend(
    queries: Tensor, batch: RaggedBatch, pool: KvPool, *, strict: bool = True, window: int | None = None
) -> Tensor:
    poison()
    windows = () if window is None else (None, window)
    plan = TritonPlan(batch, pool, queries.shape[1], pool.data.dtype, strict=strict, windows=windows)
    plan.queries.copy_(queries * plan.scale)
    return plan.attend(1).view(queries.shape)


def check(
    batch: RaggedBatch, *, heads: int = 2, kv_heads: int = 1, head_dim: int = 64, window: int | None = None
) -> None:
    queries, pool = noise(batch.rows, heads, head_dim, seed=9) * 2, filled_pool(batch, kv_heads, head_dim)
    expected = reference.tree_attention(queries, pool, 1, batch, head_dim**-0.5, window)
    for strict in (True, False):
        out = attend(queries, batch, pool, strict=strict, window=window)
        torch.testing.assert_close(out.double(), expected, atol=5e-6, rtol=5e-6)


def build(*sequences: SequenceRows, size: int = 16) -> RaggedBatch:
    return RaggedBatch.build(sequences, size, DEVICE)


@st.composite
def steps(draw: st.DrawFn) -> RaggedBatch:
    """Chunks and trees, some of which earlier steps began, behind contexts of no or some spans."""
    size = draw(st.sampled_from([16, 32]))
    sequences = []
    for offset in range(draw(st.integers(1, 2))):
        context, nodes = draw(st.integers(0, 400)), draw(st.integers(1, 20))
        if draw(st.booleans()):
            parents = [draw(st.integers(max(-1, node - 9), node - 1)) for node in range(nodes)]
            rows = draw(st.integers(1, nodes))
            sequences.append(sequence(rows, context, size, parents=parents, offset=offset))
        else:
            sequences.append(sequence(nodes, context, size, offset=offset))
    return build(*sequences, size=size)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(6, 2, 80), (1, 1, 64)])
@settings(max_examples=5, deadline=None)
@given(batch=steps())
def test_every_row_attends_to_its_context_and_path_alone(
    heads: int, kv_heads: int, head_dim: int, batch: RaggedBatch
) -> None:
    check(batch, heads=heads, kv_heads=kv_heads, head_dim=head_dim)


@pytest.mark.parametrize("context", [0, 15, 16, 17, 63, 64, 127, 330])
@pytest.mark.parametrize("parents", [[-1], BUSHY])
def test_small_trees_at_every_boundary(context: int, parents: Sequence[int]) -> None:
    check(build(sequence(len(parents), context, parents=parents)))


@pytest.mark.parametrize(("parents", "context"), [(CHAIN, 330), (STAR, 63)])
def test_trees_of_sixty_four_nodes(parents: Sequence[int], context: int) -> None:
    check(build(sequence(len(parents), context, parents=parents)))


def test_a_context_of_many_spans() -> None:
    check(build(sequence(3, 2500, 32), sequence(4, 700, 32, parents=[-1, 0, 0, 1], offset=1), size=32))


def test_a_chunk_whose_rows_fold_their_spans_themselves() -> None:
    check(build(sequence(130, 330, 32), size=32))


@pytest.mark.parametrize("window", [3, 64, 200, 300])
def test_a_row_with_a_window_attends_to_its_latest_positions_alone(window: int) -> None:
    chunk, tree = sequence(20, 250), sequence(10, 400, parents=BUSHY, offset=1)
    check(build(chunk, tree), window=window)


def test_a_chunk_with_a_window_whose_rows_fold_their_spans_themselves() -> None:
    check(build(sequence(130, 330, 32), size=32), window=150)


@pytest.mark.parametrize("head_dim", [96, 128, 256])
def test_heads_of_every_size(head_dim: int) -> None:
    check(build(sequence(4, 70, parents=[-1, 0, 0, 2])), head_dim=head_dim)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_only_what_its_rounding_takes(dtype: torch.dtype) -> None:
    batch = build(sequence(10, 300, parents=BUSHY))
    queries, pool = noise(10, 4, 64, seed=9), filled_pool(batch, dtype=dtype)
    plan = TritonPlan(batch, pool, 4, dtype)
    plan.queries.copy_(queries * plan.scale)
    rounded = plan.queries.float() / plan.scale
    expected = reference.tree_attention(rounded, pool, 1, batch, 64**-0.5)
    close = 2e-3 if dtype == torch.float16 else 1.5e-2
    torch.testing.assert_close(plan.attend(1).view(queries.shape).double(), expected, atol=close, rtol=close)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_keys_and_values_in_eight_bits_are_read_as_what_they_stand_for(dtype: torch.dtype) -> None:
    """Also next to heads whose scales are a million times smaller, and quants below the least normal number."""
    batch = build(sequence(10, 140, parents=BUSHY))
    pool = filled_pool(batch, dtype=torch.float32)
    sizes = 10.0 ** noise(*pool.data.shape[:-1], seed=5).mul(2).clamp(-6, 2)
    quants = KvPool(2, 180, 16, 2, 64, dtype, DEVICE)
    data, scales = kv_quant.quantize((pool.data * sizes[..., None]).nan_to_num(), dtype)
    quants.data.copy_(data)
    assert quants.scales is not None
    quants.scales.copy_(scales).masked_fill_(pool.data.isnan().any(-1), float("nan"))
    queries = noise(10, 4, 64, seed=9)
    plan = TritonPlan(batch, quants, 4, torch.float32)
    plan.queries.copy_(queries * plan.scale)
    expected = reference.tree_attention(queries, quants, 1, batch, 64**-0.5)
    torch.testing.assert_close(plan.attend(1).view(queries.shape).double(), expected, atol=2e-5, rtol=2e-5)


def test_scores_too_large_for_an_exponential_are_no_trouble() -> None:
    batch = build(sequence(3, 90))
    assert attend(noise(3, 4, 64) * 1e4, batch, filled_pool(batch)).isfinite().all()


@pytest.mark.parametrize(("context", "window"), [(57, None), (120, None), (505, None), (120, 3), (505, 90), (505, 300)])
def test_a_tokens_bits_are_the_same_in_a_chunk_alone_and_on_any_path(context: int, window: int | None) -> None:
    """Eight tokens, over the ends of units and spans: as a chunk, one by one, and as the spine of a bushy tree."""
    tokens, heads, nodes = 8, 2, 16
    queries = noise(tokens, heads, 64, seed=3)
    whole = sequence(tokens, context)
    pool = filled_pool(build(whole), kv_heads=1)
    chunk = attend(queries, build(whole), pool, window=window)
    singles = [
        attend(queries[i : i + 1], build(SequenceRows(1, context + i, whole.pages)), pool, window=window)
        for i in range(tokens)
    ]
    assert torch.equal(torch.cat(singles), chunk)

    spine = [2 * i for i in range(tokens)]
    parents = [-1 if node < 2 else (node // 2 - 1) * 2 for node in range(nodes)]
    tree = sequence(nodes, context, parents=parents, offset=1)
    bushy_pool, bushy = filled_pool(build(whole, tree), kv_heads=1), noise(nodes, heads, 64, seed=4)
    bushy[spine] = queries
    own, theirs = (slots(s, context + nodes) for s in (SequenceRows(1, context, tree.pages), whole))
    bushy_pool.data[:, own[:context]] = pool.data[:, theirs[:context]]
    bushy_pool.data[:, [own[context + node] for node in spine]] = pool.data[:, theirs[context : context + tokens]]
    assert torch.equal(attend(bushy, build(tree), bushy_pool, window=window)[spine], chunk)


def slots(s: SequenceRows, tokens: int) -> list[int]:
    return [s.pages[i // 16] * 16 + i % 16 for i in range(min(tokens, len(s.pages) * 16))]


@pytest.mark.parametrize("window", [None, 70, 300])
def test_a_long_chunks_bits_are_those_of_its_tokens_alone(window: int | None) -> None:
    whole = sequence(130, 330)
    pool, queries = filled_pool(build(whole), kv_heads=1), noise(130, 2, 64, seed=3)
    chunk = attend(queries, build(whole), pool, window=window)
    for row in (0, 1, 63, 64, 129):
        alone = build(SequenceRows(1, 330 + row, whole.pages))
        assert torch.equal(attend(queries[row : row + 1], alone, pool, window=window), chunk[row : row + 1])


def test_other_sequences_and_their_order_change_no_bits() -> None:
    members = [sequence(5, 300), sequence(10, 80, parents=BUSHY, offset=1)]
    both = build(*members)
    pool, queries = filled_pool(both), noise(15, 4, 64)
    together = attend(queries, both, pool)
    turned = attend(queries.roll(10, 0), build(*members[::-1]), pool)
    assert torch.equal(turned.roll(-10, 0), together)
    assert torch.equal(attend(queries[:5], build(members[0]), pool), together[:5])
    assert torch.equal(attend(queries[5:], build(members[1]), pool), together[5:])


def test_a_page_that_is_not_in_the_pool_is_refused() -> None:
    batch = build(SequenceRows(1, 20, [3, 180]))
    pool = KvPool(1, 180, 16, 2, 64, device=DEVICE)
    with pytest.raises(ValueError, match=r"3 to 180 .* 0 to 179"):
        TritonPlan(batch, pool, 4, torch.float32)


def test_a_tree_of_too_many_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="65 nodes"):
        TritonPlan(
            build(sequence(65, 0, parents=[-1] * 65)), KvPool(1, 180, 16, 2, 64, device=DEVICE), 4, torch.float32
        )


@pytest.mark.parametrize(
    ("heads", "dtype", "size", "message"),
    [
        (5, torch.float32, 16, "5 heads do not divide into groups of 2 key heads"),
        (64, torch.float32, 16, "32 heads share a key head; at most 16 can"),
        (4, torch.float64, 16, "queries are torch.float64; they must be one of"),
        (4, torch.float32, 24, "pages hold 24 tokens; it must be a power of two"),
    ],
)
def test_what_has_no_kernel_is_refused(heads: int, dtype: torch.dtype, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TritonPlan(build(sequence(1, 5, size), size=size), KvPool(1, 9, size, 2, 64, device=DEVICE), heads, dtype)


def test_a_plan_with_capacity_says_what_the_plan_of_each_step_says() -> None:
    """A step's items that a shorter step lacks are forgotten; one program takes several spans of a chunk's rows."""
    pool = KvPool(1, 40, 16, 1, 64, torch.float32, DEVICE)
    pool.data.copy_(noise(*pool.data.shape))

    def planned(rows: int, context: int, parents: Sequence[int] | None = None) -> TritonPlan:
        chunk, row = SequenceRows(rows, context, range(30), parents), SequenceRows(1, 140, range(30, 40))
        return TritonPlan(RaggedBatch.build([chunk, row], 16, DEVICE), pool, 1, torch.float32)

    roomy = planned(131, 300).with_capacity(Capacity(rows=160, items=16, folded=16, pages=32, partials=300))
    for rows, context, parents in ((131, 300, None), (128, 330, None), (10, 330, BUSHY), (10, 330, None)):
        step, queries = planned(rows, context, parents), noise(rows + 1, 1, 64, seed=rows)
        poison()
        for plan in (step, roomy):
            plan.queries[: rows + 1].copy_(queries * plan.scale)
        roomy.load(step.step)
        assert torch.equal(roomy.attend(0)[: rows + 1], step.attend(0))
