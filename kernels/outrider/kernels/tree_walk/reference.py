"""tree_walk in Python."""

from __future__ import annotations

import torch
from outrider.kernels.tree_walk.walks import Trees, Walks


def tree_walk(trees: Trees, depth: int) -> Walks:
    """See `outrider.kernels.tree_walk.tree_walk`."""
    trees.check(depth)
    offsets, drawn = trees.offsets.tolist(), trees.drawn.tolist()
    guesses, parents = trees.guesses.tolist(), trees.parents.tolist()
    rows, counts, tokens = [], [], []
    for sequence in range(len(offsets) - 1):
        nodes = slice(offsets[sequence], offsets[sequence + 1])
        first = offsets[sequence] + sequence
        path, said = _walk(guesses[nodes], parents[nodes], drawn[first:], depth)
        counts.append(len(path))
        padding = [-1] * (depth + 1 - len(path))
        rows.append(path + padding)
        tokens.append(said + padding)
    shape = (len(counts), depth + 1)
    device = trees.drawn.device
    return Walks(
        torch.tensor(rows, dtype=torch.int32, device=device).view(shape),
        torch.tensor(counts, dtype=torch.int32, device=device),
        torch.tensor(tokens, dtype=torch.int32, device=device).view(shape),
    )


def _walk(guesses: list[int], parents: list[int], drawn: list[int], depth: int) -> tuple[list[int], list[int]]:
    named = [*enumerate(zip(parents, guesses, strict=True), start=1)]
    children = {(parent + 1, token): row for row, (parent, token) in reversed(named) if token >= 0}
    rows, tokens = [0], [drawn[0]]
    while len(rows) <= depth and (row := children.get((rows[-1], tokens[-1]))) is not None:
        rows.append(row)
        tokens.append(drawn[row])
    return rows, tokens
