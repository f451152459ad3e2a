"""tree_attention as Triton kernels: `_attend` gives each row the partial results of its spans, `_merge` joins them.

One program takes some rows of one sequence, one key head, and one span of positions; the rows' heads of that group
fill the left side of the matrix products (FlashDecoding, Dao et al. 2023; online softmax, Milakov, Gimelshein 2018).
The spans of a row, and the order in which partial results are joined, are a function of the row's own position: see
`outrider.kernels.tree_attention.spans`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.kv_codes.triton import decode, kind, raw, unit
from outrider.kernels.launch import Config, launch, product_dtype
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import check_attention, tables
from outrider.kernels.tree_attention.blocks import block_shape
from outrider.kernels.tree_attention.spans import LOG2_E, MOST_NODES, UNIT
from outrider.kernels.tree_attention.tables import ITEM, Capacity, Layout, Tables
from torch import Tensor

FAR, PATH, BITS = (tl.constexpr(kind) for kind in (tables.FAR, tables.PATH, tables.BITS))

_NO_WINDOW = 2**30
"""A window that is longer than any sequence."""

_PRODUCT = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def _fold(top, total, sums, next_top, next_total, next_sums):
    """Joins two partial softmax sums, the second behind the first."""
    joint = tl.maximum(top, next_top)
    safe = tl.where(joint == float("-inf"), 0.0, joint)
    first = tl.exp2(top - safe)
    second = tl.exp2(next_top - safe)
    total = total * first + next_total * second
    sums = sums * first[:, None] + next_sums * second[:, None]
    return joint, total, sums


@triton.jit
def _values(place, inside, PRODUCT: tl.constexpr, KIND: tl.constexpr):
    if KIND:
        return decode(tl.load(place, inside, other=0), KIND).to(PRODUCT)
    return tl.load(place, inside, other=0.0).to(PRODUCT)


@triton.jit
def _span(
    q, visible_from, visible_to, ancestors, path, kv, scales, pages, begin, end, context, path_from, tree_from, head,
    page_count,
    GROUP_ROWS: tl.constexpr, TILE: tl.constexpr, PAGE: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, KIND: tl.constexpr, PRODUCT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The partial softmax sum of rows [GROUP_ROWS] over positions ``begin`` to ``end - 1``."""
    top = tl.full([GROUP_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_ROWS], tl.float32)
    sums = tl.zeros([GROUP_ROWS, BLOCK_D], tl.float32)
    element = tl.arange(0, BLOCK_D)
    first = begin + tl.maximum(tl.min(visible_from) - begin, 0) // TILE * TILE
    for tile in range(first, end, TILE):
        position = tile + tl.arange(0, TILE)
        inside = position < end
        depth = position - context
        on_path = inside & (position >= path_from)
        token = tl.where(on_path, context + tl.load(path + depth, on_path, other=0), position)
        page = tl.load(pages + token // PAGE, inside, other=0)
        tl.device_assert((page >= 0) & (page < page_count), "a page id is out of range")
        slot = page.to(tl.int64) * PAGE + token % PAGE
        place = (slot * 2 * KV_HEADS + head)[:, None] * DIM + element[None, :]
        loaded = inside[:, None] & (element < DIM)[None, :]
        keys = _values(kv + place, loaded, PRODUCT, KIND)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
        if KIND:
            scores *= (tl.load(scales + slot * 2 * KV_HEADS + head, inside, other=0.0) * unit(KIND))[None, :]
        seen = (position[None, :] >= visible_from[:, None]) & (position[None, :] <= visible_to[:, None])
        in_tree = inside & (position >= tree_from)
        bit = (ancestors[:, None] >> tl.where(in_tree, depth, 0)[None, :].to(tl.int64)) & 1
        scores = tl.where(tl.where(in_tree[None, :], bit != 0, seen), scores, float("-inf"))
        joint = tl.maximum(top, tl.max(scores, 1))
        safe = tl.where(joint == float("-inf"), 0.0, joint)
        weights = tl.exp2(scores - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(weights, 1)
        if KIND:
            scale = tl.load(scales + (slot * 2 + 1) * KV_HEADS + head, inside, other=0.0) * unit(KIND)
            weights *= scale[None, :]
        values = _values(kv + place + KV_HEADS * DIM, loaded, PRODUCT, KIND)
        sums = tl.dot(weights.to(PRODUCT), values, sums * shrink[:, None], input_precision=PRECISION)
        top = joint
    return top, total, sums


@triton.jit(do_not_specialize=["most_pages", "page_count", "row_count", "window"])
def _attend(
    queries, kv, scales, items, positions, spans, starts, counts, ancestors, paths, contexts, pages,
    sums_out, stats_out, most_pages, page_count, row_count, window,
    GROUP_ROWS: tl.constexpr, GROUP: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr, PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, KIND: tl.constexpr,
    FOLDS: tl.constexpr, PRODUCT: tl.constexpr, PRECISION: tl.constexpr, ITEM: tl.constexpr,
    MOST_NODES: tl.constexpr,
):  # fmt: skip
    item = items + tl.program_id(0) * ITEM
    head = tl.program_id(1)
    rows = tl.load(item + 2)
    if rows <= 0:
        return
    sequence = tl.load(item).to(tl.int64)
    first = tl.load(item + 1)
    begin = tl.load(item + 3)
    end = tl.load(item + 4)
    span = tl.load(item + 5)
    kind = tl.load(item + 6)
    lane = tl.arange(0, GROUP_ROWS)
    row = tl.minimum(first + lane // GROUP, row_count - 1)
    position = tl.load(positions + row).to(tl.int32)
    far_end = tl.maximum(position - (MOST_NODES - 1), 0) // UNIT * UNIT
    visible_from = tl.maximum(tl.where(kind == FAR, begin, far_end), position - window + 1)
    visible_to = tl.where(kind == FAR, tl.minimum(end, far_end) - 1, position)
    bits = tl.load(ancestors + row)
    element = tl.arange(0, BLOCK_D)
    query = (row.to(tl.int64) * KV_HEADS + head) * GROUP + lane % GROUP
    q = tl.load(queries + query[:, None] * DIM + element[None, :], (element < DIM)[None, :], other=0.0).to(PRODUCT)
    context = tl.load(contexts + sequence)
    path_from = tl.where(kind == PATH, context, end)
    tree_from = tl.where(kind == BITS, context, end)
    own = pages + sequence * most_pages
    path = paths + first.to(tl.int64) * MOST_NODES
    if FOLDS:
        top = tl.full([GROUP_ROWS], float("-inf"), tl.float32)
        total = tl.zeros([GROUP_ROWS], tl.float32)
        sums = tl.zeros([GROUP_ROWS, BLOCK_D], tl.float32)
        for start in range(begin, end, span):
            next_top, next_total, next_sums = _span(
                q, tl.maximum(visible_from, start), visible_to, bits, path, kv, scales, own, start,
                tl.minimum(start + span, end), context, path_from, tree_from, head, page_count,
                GROUP_ROWS, TILE, PAGE, KV_HEADS, DIM, BLOCK_D, KIND, PRODUCT, PRECISION,
            )  # fmt: skip
            top, total, sums = _fold(top, total, sums, next_top, next_total, next_sums)
    else:
        top, total, sums = _span(
            q, visible_from, visible_to, bits, path, kv, scales, own, begin, end, context, path_from, tree_from, head,
            page_count, GROUP_ROWS, TILE, PAGE, KV_HEADS, DIM, BLOCK_D, KIND, PRODUCT, PRECISION,
        )  # fmt: skip
    last = tl.load(counts + row) - 1
    partial = tl.load(starts + row) + tl.where(kind == FAR, tl.load(item + 7), last)
    out = (partial.to(tl.int64) * KV_HEADS + head) * GROUP + lane % GROUP
    live = lane // GROUP < rows
    live &= tl.where(span == 0, 0, tl.load(spans + row)) == span
    live &= far_end > tl.where(kind == FAR, begin, -1)
    tl.store(sums_out + out[:, None] * DIM + element[None, :], sums, live[:, None] & (element < DIM)[None, :])
    tl.store(stats_out + out * 2, top, live)
    tl.store(stats_out + out * 2 + 1, total, live)


@triton.jit
def _merge(
    sums_in, stats_in, starts, counts, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    first = tl.load(starts + row).to(tl.int64)
    count = tl.load(counts + row)
    if count <= 0:
        return
    element = tl.arange(0, BLOCK_D)
    one = tl.arange(0, 1)
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    sums = tl.zeros([1, BLOCK_D], tl.float32)
    for partial in range(count):
        place = (first + partial) * HEADS + head
        next_top = tl.load(stats_in + place * 2 + one)
        next_total = tl.load(stats_in + place * 2 + 1 + one)
        inside = (element < DIM)[None, :]
        next_sums = tl.load(sums_in + place * DIM + element[None, :], inside, other=0.0)
        top, total, sums = _fold(top, total, sums, next_top, next_total, next_sums)
    result = (sums / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + (row * HEADS + head) * DIM + element[None, :], result, (element < DIM)[None, :])


class TritonPlan:
    """One step's attention on a GPU; see `outrider.kernels.tree_attention`.

    Attributes:
        queries: [rows, heads, head_dim] to be written before each layer's attention: rotated, and scaled by
            ``scale``.
        scale: log2(e) / sqrt(head_dim).
        out: [rows, heads * head_dim], in the queries' dtype.

    Args:
        batch: the step.
        pool: keys and values.
        heads: of the queries.
        dtype: of queries, products and result.
        strict: whether a tree's shape must not change its rows' bits.
        windows: the sliding window of each layer, None where rows see everything; empty where all layers do.

    Raises:
        ValueError: a shape or dtype has no kernel.
    """

    def __init__(
        self,
        batch: RaggedBatch,
        pool: KvPool,
        heads: int,
        dtype: torch.dtype,
        *,
        strict: bool = True,
        windows: Sequence[int | None] = (),
    ) -> None:
        check_attention(pool, heads, dtype)
        dim, group = pool.head_dim, heads // pool.kv_heads
        shape = block_shape(dtype, pool, max(s.rows for s in batch.sequences) * group, strict)
        self._windows = [_NO_WINDOW if window is None else window for window in windows]
        by_path = strict or min(self._windows, default=_NO_WINDOW) < MOST_NODES
        self._tables = Tables.build(batch, Layout(shape.rows // group, by_path), pool.pages)
        self.scale = dim**-0.5 * LOG2_E
        self._positions, self._pool, self._group = batch.positions, pool, group
        self._allocate(batch.rows, heads, dtype)
        self._config, self._folds = shape.config, shape.folds
        self._constants: dict[str, Any] = {
            "GROUP_ROWS": shape.rows,
            "GROUP": group,
            "UNIT": UNIT,
            "TILE": shape.tile,
            "PAGE": pool.page_size,
            "KV_HEADS": pool.kv_heads,
            "DIM": dim,
            "BLOCK_D": max(triton.next_power_of_2(dim), 16),
            "KIND": kind(pool.dtype),
            "PRODUCT": _PRODUCT[product_dtype(dtype)],
            "PRECISION": "ieee" if dim > 128 else "tf32x3",
            "ITEM": ITEM,
            "MOST_NODES": MOST_NODES,
        }

    def _allocate(self, rows: int, heads: int, dtype: torch.dtype) -> None:
        device, dim = self._pool.data.device, self._pool.head_dim
        self.queries = torch.zeros(rows, heads, dim, dtype=dtype, device=device)
        self.out = torch.zeros(rows, heads * dim, dtype=dtype, device=device)
        self._sums = torch.empty(self._tables.partials, heads, dim, device=device)
        self._stats = torch.empty(self._tables.partials, heads, 2, device=device)

    @property
    def size(self) -> tuple[Capacity, int] | None:
        """The least capacity for the step, and the rows of a program; None where long chunks have folded items."""
        t = self._tables
        capacity = Capacity(len(t.counts), len(t.items), t.pages.shape[1])
        return None if len(t.folded) else (capacity, self._constants["GROUP_ROWS"])

    def with_capacity(self, capacity: Capacity) -> TritonPlan:
        """A plan without work, whose tensors stay in place: `load` copies steps of the same ``GROUP_ROWS`` into it."""
        plan = copy.copy(self)
        plan._tables = Tables.empty(capacity, self._pool.data.device)
        plan._positions = torch.zeros(capacity.rows, dtype=torch.int64, device=self._pool.data.device)
        plan._allocate(capacity.rows, self.queries.shape[1], self.queries.dtype)
        plan._folds = False
        return plan

    def load(self, step: TritonPlan) -> None:
        """Makes this the plan of ``step``: later calls of `attend` compute the rows of ``step`` and no others."""
        self._tables.load(step._tables)
        self._positions[: len(step._positions)].copy_(step._positions)

    def attend(self, layer: int) -> Tensor:
        """The result in ``layer``, whose keys and values are written: `out`."""
        self._attend(self._tables.items, False, layer)
        if self._folds:
            self._attend(self._tables.folded, True, layer)
        heads, dim = self.queries.shape[1:]
        t = self._tables
        args = {"sums_in": self._sums, "stats_in": self._stats, "starts": t.starts, "counts": t.counts, "out": self.out}
        constants = {"HEADS": heads, "DIM": dim, "BLOCK_D": self._constants["BLOCK_D"]}
        launch(_merge, (len(self.out), heads), args, constants, Config(warps=1, fused=False))
        return self.out

    def _attend(self, items: Tensor, folds: bool, layer: int) -> None:
        t, pool = self._tables, self._pool
        args: dict[str, Tensor | int | float] = {
            "queries": self.queries,
            "kv": raw(pool.slots[layer]),
            "scales": self._stats if pool.scales is None else pool.scales[layer],
            "items": items,
            "positions": self._positions,
            "spans": t.spans,
            "starts": t.starts,
            "counts": t.counts,
            "ancestors": t.ancestors,
            "paths": t.paths,
            "contexts": t.contexts,
            "pages": t.pages,
            "sums_out": self._sums,
            "stats_out": self._stats,
            "most_pages": t.pages.shape[1],
            "page_count": pool.pages,
            "row_count": len(self.out),
            "window": self._windows[layer] if self._windows else _NO_WINDOW,
        }
        launch(_attend, (len(items), pool.kv_heads), args, {**self._constants, "FOLDS": folds}, self._config)
