"""experts as Triton kernels: rows are grouped by expert on the device, and each group has the matmuls of `linear`.

`_route` picks each row's experts, `_group` lists the rows of each expert in blocks of one tile, `_matmul` runs twice
over the blocks, first with the gate, and `_add` sums each row's results. A grid depends on the numbers of rows and
experts alone: there are as many blocks as the worst choice fills, and those that the rows at hand leave empty end at
once. A pair is a row and one of its experts; pairs are numbered row after row, each row's experts ascending.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, dot_dtype, launch
from outrider.kernels.linear.packed_weight import PackedWeight
from outrider.kernels.linear.tiling import Tile, tile_of
from outrider.kernels.linear.triton import KINDS, share_of_sums
from outrider.kernels.swiglu.triton import gated
from torch import Tensor

_MOST_ROWS = 64
"""Most rows of a block: each has two sums, and blocks of more rows would stay emptier."""
_BLOCK = 1024


@triton.jit(do_not_specialize=["normed"])
def _route(scores, chosen, shares, normed, COUNT: tl.constexpr, ACTIVE: tl.constexpr, LANES: tl.constexpr):
    """A row's likeliest experts, ascending, and their shares."""
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, LANES)
    inside = expert < COUNT
    score = tl.load(scores + row * COUNT + expert, inside, other=float("-inf"))
    # The largest is finite, since the difference of two infinities is no number.
    likely = tl.exp(score - tl.maximum(tl.max(score, 0), -3e38))
    likely /= tl.sum(likely, 0)
    # NaN is as unlikely as can be, so that a row's experts always differ.
    left = tl.where(inside, tl.where(likely == likely, likely, 0.0), -1.0)
    total = 0.0
    for _ in range(ACTIVE):
        best = tl.argmax(left, 0)
        total += tl.sum(tl.where(expert == best, likely, 0.0), 0)
        left = tl.where(expert == best, -2.0, left)
    taken = left == -2.0
    pair = row * ACTIVE + tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(chosen + pair, expert, taken)
    tl.store(shares + pair, likely / tl.where(normed != 0, total, 1.0), taken)


@triton.jit(do_not_specialize=["pairs", "blocks"])
def _group(
    chosen, members, experts, pairs, blocks,
    COUNT: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """An expert's blocks: its pairs, ascending, and ``pairs`` where there are no more. Expert COUNT has empty ones."""
    expert = tl.program_id(0)
    lane, place = tl.arange(0, LANES), tl.arange(0, BLOCK)
    counts = tl.zeros([LANES], tl.int32)
    for start in range(0, pairs, BLOCK):
        counts += tl.histogram(tl.load(chosen + start + place, start + place < pairs, other=COUNT), LANES)
    used = tl.where(lane < COUNT, (counts + ROWS - 1) // ROWS, 0)
    first = tl.sum(tl.where(lane < expert, used, 0), 0)
    own = tl.where(expert < COUNT, tl.sum(tl.where(lane == expert, used, 0), 0), blocks - first)
    for start in range(0, own, BLOCK):
        tl.store(experts + first + start + place, expert, start + place < own)
    seen = first * ROWS
    for start in range(0, pairs, BLOCK):
        pair = start + place
        mine = tl.load(chosen + pair, pair < pairs, other=-1) == expert
        tl.store(members + seen + tl.cumsum(mine.to(tl.int32), 0) - 1, pair, mine)
        seen += tl.sum(mine.to(tl.int32), 0)
    rest = seen + tl.arange(0, ROWS)
    tl.store(members + rest, pairs, rest < (first + own) * ROWS)


@triton.jit
def _sums(
    x, words, rows, row, column, K: tl.constexpr, LINES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WORDS: tl.constexpr, SPLITS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """A tile of ``words @ x.T``, [COLUMNS, ROWS], whose shares are added in the order of `linear`."""
    total = tl.zeros([COLUMNS, ROWS], tl.float32)
    for split in range(SPLITS):
        total += share_of_sums(
            x, words, words, words, words, words, words, words, rows, LINES, row, column, split,
            K, 1, 0, None, False, 0, ROWS, COLUMNS, 1, WORDS, SPLITS, None, 0.0, False, KIND, None,
        )  # fmt: skip
    return total


@triton.jit(do_not_specialize=["rows", "pairs"])
def _matmul(
    x, words, members, experts, out, rows, pairs,
    K: tl.constexpr, OUTER: tl.constexpr, GATED: tl.constexpr, FANOUT: tl.constexpr, COUNT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WORDS: tl.constexpr, SPLITS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """A tile of the results of one block; FANOUT pairs have the same row of ``x``."""
    block = tl.program_id(0).to(tl.int64)
    expert = tl.load(experts + block).to(tl.int64)
    if expert == COUNT:
        return
    LINES: tl.constexpr = 2 * OUTER if GATED else OUTER
    pair = tl.load(members + block * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row = tl.where(pair < pairs, pair // FANOUT, rows)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    own = words + expert * (LINES * K)
    total = _sums(x, own, rows, row, column, K, LINES, ROWS, COLUMNS, WORDS, SPLITS, KIND)
    if GATED:
        up = _sums(x, own, rows, row, column + OUTER, K, LINES, ROWS, COLUMNS, WORDS, SPLITS, KIND)
        # Rounded as `linear` and `swiglu` would round between two launches.
        kind = out.dtype.element_ty
        total = gated(total.to(kind).to(tl.float32), up.to(kind).to(tl.float32))
    at = pair[None, :] * OUTER + column[:, None]
    tl.store(out + at, total.to(out.dtype.element_ty), (pair < pairs)[None, :] & (column < OUTER)[:, None])


@triton.jit
def _add(results, shares, out, ACTIVE: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """A block of a row's results times their shares, added in the order of the experts."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for place in tl.static_range(ACTIVE):
        pair = row * ACTIVE + place
        result = tl.load(results + pair * HIDDEN + column, column < HIDDEN, other=0.0).to(tl.float32)
        total += result * tl.load(shares + pair)
    tl.store(out + row * HIDDEN + column, total, column < HIDDEN)


class StackedExperts:
    """Experts in 16 or 32 bits; see `outrider.kernels.experts.Experts`.

    Args:
        gate_up: [count, 2 * width, hidden], the gate first.
        down: [count, hidden, width].
        active: experts of a row.
        normed: whether a row's shares are divided by their sum.

    Raises:
        ValueError: the weights do not fit each other, or ``active`` is more than there are.
    """

    on_device = True

    def __init__(self, gate_up: Tensor, down: Tensor, active: int, *, normed: bool) -> None:
        count, hidden, width = down.shape
        if gate_up.shape != (count, 2 * width, hidden) or gate_up.dtype != down.dtype:
            raise ValueError(
                f"gate_up is {tuple(gate_up.shape)} in {gate_up.dtype}; beside down it must be "
                f"{(count, 2 * width, hidden)} in {down.dtype}"
            )
        if not 1 <= active <= count:
            raise ValueError(f"active is {active}; it must be from 1 to {count}, the number of experts")
        self.dtype = down.dtype
        self._gate_up, self._down = gate_up.contiguous(), down.contiguous()
        self._count, self._active, self._normed = count, active, normed

    def __call__(self, x: Tensor, scores: Tensor) -> Tensor:
        """See `outrider.kernels.experts.Experts`.

        Raises:
            ValueError: ``x`` or ``scores`` do not fit the weights.
        """
        rows, hidden = len(x), self._down.shape[1]
        self._check(x, scores)
        out = torch.empty(rows, hidden, dtype=torch.float32, device=x.device)
        if not rows:
            return out
        pairs = rows * self._active
        first, second = self._tiles(-(-pairs // self._count))
        chosen = torch.empty(pairs, dtype=torch.int32, device=x.device)
        shares = torch.empty(pairs, dtype=torch.float32, device=x.device)
        lanes = max(triton.next_power_of_2(self._count + 1), 32)
        counts = {"COUNT": self._count, "LANES": lanes}
        routed: dict[str, Tensor | int] = {
            "scores": scores,
            "chosen": chosen,
            "shares": shares,
            "normed": int(self._normed),
        }
        launch(_route, (rows,), routed, {**counts, "ACTIVE": self._active}, Config(warps=1))
        members, blocks = self._grouped(chosen, first.rows, counts)
        between = self._matmul(x, self._gate_up, members, blocks, first, self._active)
        results = self._matmul(between, self._down, members, blocks, second, 1)
        summed = {"results": results, "shares": shares, "out": out}
        constants = {"ACTIVE": self._active, "HIDDEN": hidden, "BLOCK": _BLOCK}
        launch(_add, (rows, triton.cdiv(hidden, _BLOCK)), summed, constants, Config(fused=False))
        return out

    def _tiles(self, rows: int) -> tuple[Tile, Tile]:
        """The tiles of both matmuls, with the same number of rows, where an expert has ``rows`` rows on average."""
        first, second = (
            tile_of(PackedWeight(weight[0], 1, weight.shape[2], self.dtype), min(rows, _MOST_ROWS), strict=True)
            for weight in (self._gate_up, self._down)
        )
        return (first, second) if first.rows == second.rows else self._tiles(_MOST_ROWS)

    def _grouped(self, chosen: Tensor, rows: int, counts: dict[str, int]) -> tuple[Tensor, Tensor]:
        """Int32 [blocks * rows], the pairs of each block, and [blocks], its expert."""
        pairs = len(chosen)
        # Most blocks are begun where each expert that has pairs has one block with a single pair.
        busy = min(self._count, pairs)
        blocks = busy + (pairs - busy) // rows
        members, experts = (
            torch.empty(size, dtype=torch.int32, device=chosen.device) for size in (blocks * rows, blocks)
        )
        args: dict[str, Tensor | int] = {
            "chosen": chosen,
            "members": members,
            "experts": experts,
            "pairs": pairs,
            "blocks": blocks,
        }
        launch(_group, (self._count + 1,), args, {**counts, "ROWS": rows, "BLOCK": _BLOCK}, Config())
        return members, experts

    def _matmul(self, x: Tensor, weight: Tensor, members: Tensor, experts: Tensor, tile: Tile, fanout: int) -> Tensor:
        gated = weight is self._gate_up
        inner, outer = weight.shape[2], weight.shape[1] // (2 if gated else 1)
        pairs = len(x) * fanout
        out = torch.empty(pairs, outer, dtype=x.dtype, device=x.device)
        args = {"x": x, "words": weight, "members": members, "experts": experts, "out": out}
        constants = {
            "K": inner,
            "OUTER": outer,
            "GATED": gated,
            "FANOUT": fanout,
            "COUNT": self._count,
            "ROWS": tile.rows,
            "COLUMNS": tile.columns,
            "WORDS": tile.words,
            "SPLITS": tile.splits,
            "KIND": KINDS[dot_dtype(x.dtype)],
        }
        grid = (len(experts), triton.cdiv(outer, tile.columns))
        launch(_matmul, grid, {**args, "rows": len(x), "pairs": pairs}, constants, tile.config)
        return out

    def _check(self, x: Tensor, scores: Tensor) -> None:
        shape = (len(x), self._down.shape[1])
        if x.shape != shape or x.dtype != self.dtype or not x.is_contiguous() or x.device != self._down.device:
            raise ValueError(
                f"x is {tuple(x.shape)} in {x.dtype} on {x.device}; it must be a contiguous [n, {shape[1]}] in "
                f"{self.dtype} on {self._down.device}"
            )
        if scores.shape != (len(x), self._count) or scores.dtype != torch.float32 or not scores.is_contiguous():
            raise ValueError(
                f"scores are {tuple(scores.shape)} in {scores.dtype}; they must be a contiguous "
                f"{(len(x), self._count)} in float32"
            )
