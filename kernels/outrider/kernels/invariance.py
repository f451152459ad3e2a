"""Finds, on the machine at hand, sizes of matmuls for which a row's bits depend on the row alone.

A matmul's rows are independent in exact arithmetic, but libraries pick their kernels, and with them the order
of sums, by the number of rows. Each machine's order is probed, not assumed (He and Thinking Machines Lab 2025,
"Defeating nondeterminism in LLM inference", fix it in kernels of their own).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.linear import Linear
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import CpuPlan, Tiling
from torch import Tensor

_MOST_ROWS = (256, 64, 32, 16)
"""Candidates for the rows of the longest matmul, best first; longer matmuls are split."""
_LEAST_ROWS = (1, 2, 4, 8, 16, 32)
_SAMPLE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, 256)
_ROUNDS = 2
_BLOCK = 4096
"""Rows of a weight that are drawn at once."""
_CONTEXTS = (0, 9, 60, 121, 300)
_WINDOW = 49
"""A window whose first position passes the end of a block among the rows behind the longest of the contexts."""
TILINGS = (Tiling(4, 16, 192, 128), Tiling(16, 16, 192, 128), Tiling(16, 32, 128, 64), Tiling(32, 64, 128, 64))
"""Tilings of attention that are tried, the cheapest first."""


class NotInvariant(Exception):
    """No way was found to keep a row's bits the same."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Numbers of rows within which a matmul gives a row the same bits.

    Attributes:
        least: matmuls of fewer rows are padded.
        most: matmuls of more rows are split.
    """

    least: int
    most: int


class InvariantLinear:
    """A linear whose rows have the same bits however many there are, given the `row_range` of its shape."""

    def __init__(self, inner: Linear, rows: RowRange) -> None:
        self.in_features, self.out_features, self.dtype = inner.in_features, inner.out_features, inner.dtype
        self._inner = inner
        self._rows = rows

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        rows = x.shape[0]
        if rows > self._rows.most:
            return torch.cat([self(piece) for piece in torch.split(x, self._rows.most)])
        if rows >= self._rows.least:
            return self._inner(x)
        return self._inner(torch.cat([x, x.new_zeros(self._rows.least - rows, self.in_features)]))[:rows]


def row_range(in_features: int, out_features: int, dtype: torch.dtype, pack: Callable[[Tensor], Linear]) -> RowRange:
    """The widest range of rows within which a matmul of this shape gives a row the same bits, found by trying.

    Libraries choose their kernels by shape and dtype, not by the weight, so the probe is a weight whose sums cancel:
    only rounding is left of them, and another order of the sum shows however coarsely the result is rounded.

    Args:
        in_features: columns of the weight.
        out_features: rows of the weight.
        dtype: of the weight.
        pack: makes a matmul from a weight.

    Raises:
        NotInvariant: there is no such range.
    """
    for most in _MOST_ROWS:
        agreeing = {rows for rows in _SAMPLE if rows <= most}
        for seed in range(_ROUNDS):  # one after the other, since a weight may be large
            weight, x = _cancelling(in_features, out_features, dtype, most, seed)
            linear = pack(weight)
            del weight
            agreeing = _same_bits(linear, x, agreeing)
        for least in (least for least in _LEAST_ROWS if least <= most):
            if agreeing.issuperset(rows for rows in _SAMPLE if least <= rows <= most):
                return RowRange(least, most)
    raise NotInvariant(
        f"rows of a {dtype} matmul of {in_features} to {out_features} features depend on their number on this "
        "machine, however they are padded and split"
    )


def _cancelling(in_features: int, out_features: int, dtype: torch.dtype, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """A weight, and rows to multiply, whose matmuls are zero except for rounding: every term has its negative."""
    generator = torch.Generator().manual_seed(seed)
    places, half = torch.randperm(in_features, generator=generator), in_features // 2
    weight, x = torch.zeros(out_features, in_features, dtype=dtype), torch.zeros(rows, in_features, dtype=dtype)
    for block, sign in ((x, 1), *((each, -1) for each in torch.split(weight, _BLOCK))):
        terms = torch.randn(len(block), half, generator=generator)
        block[:, places[:half]] = terms.to(dtype)
        block[:, places[half : 2 * half]] = (sign * terms).to(dtype)
    return weight, x


def _same_bits(linear: Linear, x: Tensor, sizes: set[int]) -> set[int]:
    """Those of ``sizes`` in which rows have the same bits as among all of ``x``, in their order and in another."""
    whole, same = linear(x), set()
    for rows in sizes:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(rows))[:rows]
        if torch.equal(linear(x[:rows]), whole[:rows]) and torch.equal(linear(x[order]), whole[order]):
            same.add(rows)
    return same


def invariant_tiling(
    heads: int, kv_heads: int, head_dim: int, tilings: Sequence[Tiling] = TILINGS, *, windows: bool = False
) -> Tiling:
    """The cheapest tiling under which attention of this shape has the same bits for a chunk, single rows and trees.

    With ``windows``, also where rows see only the latest positions.

    Raises:
        NotInvariant: no tiling tried does that.
    """
    shape = (heads, kv_heads, head_dim)
    probes = [(context, window) for window in (None, _WINDOW)[: 1 + windows] for context in _CONTEXTS]
    for tiling in tilings:
        if all(_is_invariant(tiling, *shape, *probe) for probe in probes):
            return tiling
    raise NotInvariant(
        f"attention of {heads} heads over {kv_heads} of {head_dim} elements depends on how rows are batched on this "
        "machine, in every tiling tried"
    )


def _is_invariant(tiling: Tiling, heads: int, kv_heads: int, head_dim: int, context: int, window: int | None) -> bool:
    """Whether 12 tokens have the same bits as a chunk, one by one, and as the spine of a tree with side branches."""
    tokens, size, pages = 12, 16, range(40)
    generator = torch.Generator().manual_seed(context)
    inputs = torch.randn(context + tokens, heads + 2 * kv_heads, head_dim, generator=generator)
    queries, rows = inputs[context:, :heads], inputs[:, heads:].flatten(1)
    pool = KvPool(1, len(pages), size, kv_heads, head_dim)
    pool.slots[0][: len(rows)] = rows

    def attend(sequence: SequenceRows, chosen: Tensor) -> Tensor:
        plan = CpuPlan(RaggedBatch.build([sequence], size), pool, heads, torch.float32, tiling, (window,))
        plan.queries.copy_(chosen.contiguous().view(torch.complex64).view(plan.queries.shape))
        return plan.attend(0).clone()

    chunk = attend(SequenceRows(tokens, context, pages), queries)
    singles = [attend(SequenceRows(1, context + i, pages), queries[i : i + 1]) for i in range(tokens)]
    spine, parents = _bushy_tree(tokens)
    pool.slots[0][context : context + len(parents)] = torch.randn(len(parents), rows.shape[1], generator=generator)
    pool.slots[0][[context + node for node in spine]] = rows[context:]
    bushy = torch.randn(len(parents), heads, head_dim, generator=generator)
    bushy[spine] = queries
    tree = attend(SequenceRows(len(parents), context, pages, parents), bushy)[spine]
    return torch.equal(chunk, torch.cat(singles)) and torch.equal(chunk, tree)


def _bushy_tree(tokens: int) -> tuple[list[int], Sequence[int]]:
    """A spine of ``tokens`` nodes, each followed by up to three siblings: the spine's nodes, and all parents."""
    spine: list[int] = []
    parents: list[int] = []
    for step in range(tokens):
        parent = spine[-1] if spine else -1
        spine.append(len(parents))
        parents += [parent] * (1 + step % 4)
    return spine, parents
