"""tree_walk in Triton: one program a sequence."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from outrider.kernels.tree_walk.walks import MOST_GUESSES, Trees, Walks
from torch import Tensor

_NODES = tl.constexpr(MOST_GUESSES)


@triton.jit(do_not_specialize=["depth"])
def _walk(offsets, guesses, parents, drawn, rows, counts, tokens, depth):
    sequence = tl.program_id(0).to(tl.int64)
    start = tl.load(offsets + sequence).to(tl.int64)
    size = tl.load(offsets + sequence + 1).to(tl.int64) - start
    tl.device_assert((size >= 0) & (size <= _NODES), "a tree has more than 64 guesses")
    nodes = tl.arange(0, _NODES)
    guess = tl.load(guesses + start + nodes, nodes < size, other=-1)
    parent = tl.load(parents + start + nodes, nodes < size, other=-2)
    tl.device_assert(parent < nodes, "a parent does not come before its child")
    first = drawn + start + sequence
    out = sequence * (depth + 1)
    row = tl.full((), 0, tl.int32)
    count = tl.full((), 0, tl.int32)
    for step in range(depth + 1):
        token = tl.load(first + row, row >= 0, other=-1)
        tl.store(rows + out + step, row)
        tl.store(tokens + out + step, token)
        count += (row >= 0).to(tl.int32)
        follows = (guess == token) & (guess >= 0) & (parent == tl.where(row >= 0, row - 1, -3))
        eldest = tl.min(tl.where(follows, nodes, _NODES))
        row = tl.where(eldest < _NODES, eldest + 1, -1)
    tl.store(counts + sequence, count)


def tree_walk(trees: Trees, depth: int) -> Walks:
    """See `outrider.kernels.tree_walk.tree_walk`."""
    trees.check(depth)
    sequences = trees.offsets.numel() - 1

    def empty(*shape: int) -> Tensor:
        return torch.empty(*shape, dtype=torch.int32, device=trees.drawn.device)

    walks = Walks(empty(sequences, depth + 1), empty(sequences), empty(sequences, depth + 1))
    launch(
        _walk,
        (sequences,),
        {
            "offsets": trees.offsets,
            "guesses": trees.guesses,
            "parents": trees.parents,
            "drawn": trees.drawn,
            "rows": walks.rows,
            "counts": walks.counts,
            "tokens": walks.tokens,
            "depth": depth,
        },
        {},
        Config(warps=1),
    )
    return walks
