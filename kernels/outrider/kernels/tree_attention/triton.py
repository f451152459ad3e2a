"""tree_attention as Triton kernels: `_attend` gives each row the partial results of its spans, `_merge` joins them.

One program takes some rows of one sequence, one key head, and one span of positions; the rows' heads of that group
fill the left side of the matmuls (FlashDecoding, Dao et al. 2023; online softmax, Milakov, Gimelshein 2018).
The spans of a row, and the order in which partial results are joined, are a function of the row's own position: see
`outrider.kernels.tree_attention.spans`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.kv_quant.triton import dequantize, kind, raw, unit
from outrider.kernels.launch import Config, dot_dtype, launch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import check_attention
from outrider.kernels.tree_attention.blocks import BlockShape, far_shape, near_shape
from outrider.kernels.tree_attention.spans import LOG2_E, MOST_NODES, UNIT
from outrider.kernels.tree_attention.tables import ITEM, Capacity, Layout, StepTables, Tables
from torch import Tensor

_NO_WINDOW = 2**30
"""A window that is longer than any sequence."""

_DOT = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def _fold(top, total, sums, next_top, next_total, next_sums):
    """Joins two partial softmax sums, the second behind the first."""
    # Nothing seen in either: 0 stands in for the maximum, so that no weight is exp2(inf - inf).
    joint = tl.maximum(top, next_top)
    safe = tl.where(joint == float("-inf"), 0.0, joint)
    first = tl.exp2(top - safe)
    second = tl.exp2(next_top - safe)
    total = total * first + next_total * second
    sums = sums * first[:, None] + next_sums * second[:, None]
    return joint, total, sums


@triton.jit
def _values(place, inside, DOT: tl.constexpr, KIND: tl.constexpr, WHOLE: tl.constexpr):
    """Keys or values at ``place``; where they are ``WHOLE``, all are inside."""
    value = tl.load(place) if WHOLE else tl.load(place, inside, other=0 if KIND else 0.0)
    return dequantize(value, KIND).to(DOT) if KIND else value.to(DOT)


@triton.jit
def _span(
    q, visible_from, visible_to, ancestors, path, kv, scales, pages, begin, end, context, tree_from, head, page_count,
    FAR: tl.constexpr, BY_PATH: tl.constexpr, GROUP_ROWS: tl.constexpr, TILE: tl.constexpr, PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, KIND: tl.constexpr, DOT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The partial softmax sum of rows [GROUP_ROWS] over positions ``begin`` to ``end - 1``.

    Far positions are whole tiles, and their tokens lie in order.
    """
    top = tl.full([GROUP_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_ROWS], tl.float32)
    sums = tl.zeros([GROUP_ROWS, BLOCK_D], tl.float32)
    element = tl.arange(0, BLOCK_D)
    # Tiles in front of all rows' windows are skipped. What is left begins at the same multiples of TILE for every row,
    # so that a row's sums do not depend on the other rows of the program.
    first = begin + tl.maximum(tl.min(visible_from) - begin, 0) // TILE * TILE
    # Each iteration holds TILE positions: [TILE, BLOCK_D] keys, [GROUP_ROWS, TILE] scores, [TILE, BLOCK_D] values.
    for tile in range(first, end, TILE):
        position = tile + tl.arange(0, TILE)
        seen = (position[None, :] >= visible_from[:, None]) & (position[None, :] <= visible_to[:, None])
        inside = position < end
        loaded = (element < DIM)[None, :] if FAR else inside[:, None] & (element < DIM)[None, :]
        token = position
        # Near positions: behind the context a position is a depth of the tree. A causal chunk reads its own path; the
        # rows of a tree share all nodes' tokens, and 64 bits a row say which of them are ancestors.
        if not FAR:
            depth = position - context
            in_tree = inside & (position >= tree_from)
            if BY_PATH:
                token = tl.where(in_tree, context + tl.load(path + depth, in_tree, other=0), position)
            else:
                bit = (ancestors[:, None] >> tl.where(in_tree, depth, 0)[None, :].to(tl.int64)) & 1
                seen = tl.where(in_tree[None, :], bit != 0, seen)
        page = tl.load(pages + token // PAGE) if FAR else tl.load(pages + token // PAGE, inside, other=0)
        slot = page.to(tl.int64) * PAGE + token % PAGE
        tl.device_assert((page >= 0) & (page < page_count), "a page id is out of range")
        place = (slot * 2 * KV_HEADS + head)[:, None] * DIM + element[None, :]
        keys = _values(kv + place, loaded, DOT, KIND, FAR and DIM == BLOCK_D)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
        # Keys of 8 bits enter the matmul unscaled; a token's scale multiplies its column of scores, and below its
        # value's scale multiplies the weights: TILE multiplications instead of TILE * DIM.
        if KIND:
            scores *= (tl.load(scales + slot * 2 * KV_HEADS + head, inside, other=0.0) * unit(KIND))[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        joint = tl.maximum(top, tl.max(scores, 1))
        safe = tl.where(joint == float("-inf"), 0.0, joint)
        weights = tl.exp2(scores - safe[:, None])
        # Scores carry log2(e), so that exp2, one instruction, is the exponential.
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(weights, 1)
        if KIND:
            scale = tl.load(scales + (slot * 2 + 1) * KV_HEADS + head, inside, other=0.0) * unit(KIND)
            weights *= scale[None, :]
        values = _values(kv + place + KV_HEADS * DIM, loaded, DOT, KIND, FAR and DIM == BLOCK_D)
        sums = tl.dot(weights.to(DOT), values, sums * shrink[:, None], input_precision=PRECISION)
        top = joint
    return top, total, sums


@triton.jit(do_not_specialize=["most_pages", "page_count", "row_count", "window"])
def _attend(
    queries, kv, scales, items, positions, spans, starts, counts, ancestors, paths, contexts, pages,
    sums_out, stats_out, most_pages, page_count, row_count, window,
    GROUP_ROWS: tl.constexpr, GROUP: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr, PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, KIND: tl.constexpr, FAR: tl.constexpr,
    FOLDS: tl.constexpr, BY_PATH: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr, ITEM: tl.constexpr,
    MOST_NODES: tl.constexpr,
):  # fmt: skip
    # One program: up to GROUP_ROWS / GROUP rows of a sequence, all GROUP query heads of one key head, and one span of
    # positions. The item says which: sequence, first row, rows, begin, end, span, and the partial result's number.
    item = items + tl.program_id(0) * ITEM
    head = tl.program_id(1)
    rows = tl.load(item + 2)
    # The grid is as large as the step's capacity, for CUDA graphs; items beyond the step's have no rows.
    if rows <= 0:
        return
    sequence = tl.load(item).to(tl.int64)
    first = tl.load(item + 1)
    begin = tl.load(item + 3)
    end = tl.load(item + 4)
    span = tl.load(item + 5)
    lane = tl.arange(0, GROUP_ROWS)
    row = tl.minimum(first + lane // GROUP, row_count - 1)
    position = tl.load(positions + row).to(tl.int32)
    # Where far ends depends on the row's position alone, never on the batch: the last MOST_NODES positions are near,
    # whatever of them is a tree.
    far_end = tl.maximum(position - (MOST_NODES - 1), 0) // UNIT * UNIT
    if FAR:
        visible_from = tl.maximum(begin, position - window + 1)
        visible_to = tl.minimum(end, far_end) - 1
    else:
        visible_from = tl.maximum(far_end, position - window + 1)
        visible_to = position
    bits = tl.load(ancestors + row)
    element = tl.arange(0, BLOCK_D)
    query = (row.to(tl.int64) * KV_HEADS + head) * GROUP + lane % GROUP
    q = tl.load(queries + query[:, None] * DIM + element[None, :], (element < DIM)[None, :], other=0.0).to(DOT)
    context = tl.load(contexts + sequence)
    tree_from = tl.where(tl.load(item + 6) != 0, context, end)
    own = pages + sequence * most_pages
    path = paths + first.to(tl.int64) * MOST_NODES
    # FOLDS: many rows make enough programs, so that one takes all far spans. It joins them in the order in which
    # `_merge` would, so that bits do not tell whether spans were programs of their own.
    if FOLDS:
        top = tl.full([GROUP_ROWS], float("-inf"), tl.float32)
        total = tl.zeros([GROUP_ROWS], tl.float32)
        sums = tl.zeros([GROUP_ROWS, BLOCK_D], tl.float32)
        for start in range(begin, end, span):
            next_top, next_total, next_sums = _span(
                q, tl.maximum(visible_from, start), visible_to, bits, path, kv, scales, own, start,
                tl.minimum(start + span, end), context, tree_from, head, page_count,
                FAR, BY_PATH, GROUP_ROWS, TILE, PAGE, KV_HEADS, DIM, BLOCK_D, KIND, DOT, PRECISION,
            )  # fmt: skip
            top, total, sums = _fold(top, total, sums, next_top, next_total, next_sums)
    else:
        top, total, sums = _span(
            q, visible_from, visible_to, bits, path, kv, scales, own, begin, end, context, tree_from, head, page_count,
            FAR, BY_PATH, GROUP_ROWS, TILE, PAGE, KV_HEADS, DIM, BLOCK_D, KIND, DOT, PRECISION,
        )  # fmt: skip
    last = tl.load(counts + row) - 1
    partial = tl.load(starts + row) + (tl.load(item + 6) if FAR else last)
    out = (partial.to(tl.int64) * KV_HEADS + head) * GROUP + lane % GROUP
    live = lane // GROUP < rows
    # A row whose spans have another length, or that has no far positions, belongs to another launch's item.
    if FAR:
        live &= (tl.load(spans + row) == span) & (far_end > begin)
    tl.store(sums_out + out[:, None] * DIM + element[None, :], sums, live[:, None] & (element < DIM)[None, :])
    tl.store(stats_out + out * 2, top, live)
    tl.store(stats_out + out * 2 + 1, total, live)


@triton.jit
def _merge(
    sums_in, stats_in, starts, counts, out,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    # One program: a head of a row, whose partial results it joins from the first position to the last.
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


@dataclass(frozen=True, slots=True)
class _Work:
    """The tensors of a plan on the device."""

    tables: Tables
    queries: Tensor
    out: Tensor
    sums: Tensor
    stats: Tensor


class TritonPlan:
    """One step's attention on a GPU; see `outrider.kernels.tree_attention`.

    Attributes:
        queries: [rows, heads, head_dim] to be written before each layer's attention: rotated, and scaled by
            ``scale``.
        scale: log2(e) / sqrt(head_dim).
        step: the step's tables.

    Args:
        batch: the step.
        pool: keys and values.
        heads: of the queries.
        dtype: of queries, matmuls and result.
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
        self._far = far_shape(dtype, pool, max(s.rows for s in batch.sequences) * group)
        self._near = near_shape(dtype, pool)
        self._windows = [_NO_WINDOW if window is None else window for window in windows]
        by_path = strict or min(self._windows, default=_NO_WINDOW) < MOST_NODES
        layout = Layout(self._far.rows // group, self._near.rows // group, by_path)
        self.step = StepTables.build(batch, layout, pool.pages)
        self.scale = dim**-0.5 * LOG2_E
        self._pool, self._heads, self._dtype = pool, heads, dtype
        self._work: _Work | None = None
        self._constants: dict[str, Any] = {
            "GROUP": group,
            "UNIT": UNIT,
            "PAGE": pool.page_size,
            "KV_HEADS": pool.kv_heads,
            "DIM": dim,
            "BLOCK_D": max(triton.next_power_of_2(dim), 16),
            "KIND": kind(pool.dtype),
            "BY_PATH": by_path,
            "DOT": _DOT[dot_dtype(dtype)],
            "PRECISION": "ieee" if dim > 128 else "tf32x3",
            "ITEM": ITEM,
            "MOST_NODES": MOST_NODES,
        }

    @property
    def work(self) -> _Work:
        """The step's tables and results on the device; a step that another plan loads needs none."""
        if self._work is None:
            self._work = self._allocate(self.step.capacity)
            self._work.tables.load(self.step)
        return self._work

    def _allocate(self, capacity: Capacity) -> _Work:
        device, dim = self._pool.data.device, self._pool.head_dim
        return _Work(
            tables=Tables(capacity, device),
            queries=torch.zeros(capacity.rows, self._heads, dim, dtype=self._dtype, device=device),
            out=torch.zeros(capacity.rows, self._heads * dim, dtype=self._dtype, device=device),
            sums=torch.empty(capacity.partials, self._heads, dim, device=device),
            stats=torch.empty(capacity.partials, self._heads, 2, device=device),
        )

    @property
    def queries(self) -> Tensor:
        """See `TritonPlan`."""
        return self.work.queries

    @property
    def program(self) -> int:
        """Rows of a program; plans of the same number can load each other's steps."""
        return self._far.rows

    def with_capacity(self, capacity: Capacity) -> TritonPlan:
        """A plan without work, whose tensors stay in place: `load` copies steps of the same `program` into it."""
        plan = copy.copy(self)
        plan._work = self._allocate(capacity)
        return plan

    def load(self, step: StepTables) -> None:
        """Makes this the plan of ``step``: later calls of `attend` compute the rows of ``step`` and no others."""
        self.work.tables.load(step)

    def attend(self, layer: int) -> Tensor:
        """The result in ``layer``, whose keys and values are written; see `outrider.kernels.tree_attention`."""
        tables, work = self.work.tables, self.work
        self._attend(tables.near, self._near, layer, FAR=False, FOLDS=False)
        self._attend(tables.items, self._far, layer, FAR=True, FOLDS=False)
        if len(tables.folded):
            self._attend(tables.folded, self._far, layer, FAR=True, FOLDS=True)
        args: dict[str, Tensor | int | float] = {
            "sums_in": work.sums,
            "stats_in": work.stats,
            "starts": tables.starts,
            "counts": tables.counts,
            "out": work.out,
        }
        constants = {"HEADS": self._heads, "DIM": self._pool.head_dim, "BLOCK_D": self._constants["BLOCK_D"]}
        launch(_merge, (len(work.out), self._heads), args, constants, Config(warps=1, fused=False))
        return work.out

    def _attend(self, items: Tensor, shape: BlockShape, layer: int, **kind: bool) -> None:
        tables, work, pool = self.work.tables, self.work, self._pool
        names = ("positions", "spans", "starts", "counts", "ancestors", "paths", "contexts", "pages")
        args: dict[str, Tensor | int | float] = {
            "queries": work.queries,
            "kv": raw(pool.slots[layer]),
            "scales": work.stats if pool.scales is None else pool.scales[layer],
            "items": items,
            **{name: getattr(tables, name) for name in names},
            "sums_out": work.sums,
            "stats_out": work.stats,
            "most_pages": tables.pages.shape[1],
            "page_count": pool.pages,
            "row_count": len(work.out),
            "window": self._windows[layer] if self._windows else _NO_WINDOW,
        }
        constants = {**self._constants, **kind, "GROUP_ROWS": shape.rows, "TILE": shape.tile}
        launch(_attend, (len(items), pool.kv_heads), args, constants, shape.config)
