"""Finds, on the machine at hand, how to make a row's bits depend on nothing but the row.

A matrix product's rows are independent in exact arithmetic, but libraries pick their kernels, and with them the order
of sums, by the number of rows. What order each machine's library takes is probed, not assumed (He and Thinking Machines
Lab 2025, "Defeating nondeterminism in LLM inference", fix it in kernels of their own).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.linear import Linear
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention import AttentionPlan, Tiling, tree_attention
from torch import Tensor

MOST_ROWS = 256
"""Rows of the longest product that is probed; longer ones are split."""

_LEASTS = (1, 2, 4, 8, 16, 32)
_SAMPLE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, MOST_ROWS)
_TILINGS = (Tiling(4, 16, 192, 128), Tiling(16, 16, 192, 128), Tiling(16, 32, 128, 64), Tiling(32, 64, 128, 64))


class NotInvariant(Exception):
    """No way was found to keep a row's bits the same."""


class InvariantLinear:
    """A linear whose rows have the same bits however many there are.

    Fewer than ``least`` rows (see `least_rows`) are filled up, and more than `MOST_ROWS` split.
    """

    def __init__(self, inner: Linear, least: int) -> None:
        self.in_features, self.out_features, self.dtype = inner.in_features, inner.out_features, inner.dtype
        self._inner = inner
        self._least = least

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        rows = x.shape[0]
        if rows > MOST_ROWS:
            return torch.cat([self(piece) for piece in torch.split(x, MOST_ROWS)])
        if rows >= self._least:
            return self._inner(x)
        return self._inner(torch.cat([x, x.new_zeros(self._least - rows, self.in_features)]))[:rows]


def least_rows(linear: Linear) -> int:
    """The smallest number of rows from which on ``linear`` gives a row the same bits, found by trying.

    It is a matter of the shape and dtype, not of the weight.

    Raises:
        NotInvariant: where there is none.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MOST_ROWS, linear.in_features, generator=generator).to(linear.dtype)
    order = torch.randperm(MOST_ROWS, generator=generator)
    whole = linear(x)
    if torch.equal(linear(x[order]), whole[order]):
        agreeing = {rows for rows in _SAMPLE if _same_rows(linear, x, whole, order[:rows])}
        for least in _LEASTS:
            if agreeing.issuperset(rows for rows in _SAMPLE if rows >= least):
                return least
    raise NotInvariant(
        f"rows of a {linear.dtype} product of {linear.in_features} to {linear.out_features} features depend on their "
        "number on this machine, whatever they are padded to"
    )


def _same_rows(linear: Linear, x: Tensor, whole: Tensor, chosen: Tensor) -> bool:
    rows = len(chosen)
    return torch.equal(linear(x[:rows]), whole[:rows]) and torch.equal(linear(x[chosen]), whole[chosen])


def invariant_tiling(heads: int, kv_heads: int, head_dim: int) -> Tiling:
    """The cheapest tiling under which attention of this shape has the same bits for a chunk, single rows and trees.

    Raises:
        NotInvariant: where none of those tried has.
    """
    for tiling in _TILINGS:
        if all(_holds(tiling, heads, kv_heads, head_dim, context) for context in (0, 9, 60, 121, 300)):
            return tiling
    raise NotInvariant(
        f"attention of {heads} heads over {kv_heads} of {head_dim} elements depends on how rows are batched on this "
        "machine, in every tiling tried"
    )


def _holds(tiling: Tiling, heads: int, kv_heads: int, head_dim: int, context: int) -> bool:
    """Whether 12 tokens have the same bits as a chunk, one by one, and as the spine of a tree with side branches."""
    tokens, size, pages = 12, 16, range(40)
    generator = torch.Generator().manual_seed(context)
    fed = torch.randn(context + tokens, heads + 2 * kv_heads, head_dim, generator=generator)
    queries, rows = fed[context:, :heads], fed[:, heads:].flatten(1)
    pool = KvPool(1, len(pages), size, kv_heads, head_dim)
    pool.slots[0][: len(rows)] = rows

    def attend(sequence: SequenceRows, chosen: Tensor) -> Tensor:
        plan = AttentionPlan(RaggedBatch.build([sequence], size), pool, heads, torch.float32, tiling)
        plan.queries.copy_(chosen.contiguous().view(torch.complex64).view(plan.queries.shape))
        return tree_attention(plan, 0).clone()

    chunk = attend(SequenceRows(tokens, context, pages), queries)
    singles = [attend(SequenceRows(1, context + i, pages), queries[i : i + 1]) for i in range(tokens)]
    spine, parents = _bushy(tokens)
    pool.slots[0][context : context + len(parents)] = torch.randn(len(parents), rows.shape[1], generator=generator)
    pool.slots[0][[context + node for node in spine]] = rows[context:]
    bushy = torch.randn(len(parents), heads, head_dim, generator=generator)
    bushy[spine] = queries
    tree = attend(SequenceRows(len(parents), context, pages, parents), bushy)[spine]
    return torch.equal(chunk, torch.cat(singles)) and torch.equal(chunk, tree)


def _bushy(tokens: int) -> tuple[list[int], Sequence[int]]:
    """A spine of ``tokens`` nodes, each followed by up to three siblings: the spine's nodes, and all parents."""
    spine: list[int] = []
    parents: list[int] = []
    for step in range(tokens):
        parent = spine[-1] if spine else -1
        spine.append(len(parents))
        parents += [parent] * (1 + step % 4)
    return spine, parents
