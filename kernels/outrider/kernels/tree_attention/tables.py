"""A step's tables for the attention kernels: its rows, its pages, and the list of the programs' work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows, Tree
from outrider.kernels.tree_attention.spans import MOST_NODES, MOST_SPANS, Indices, far_end, span
from torch import Tensor

ITEM = 8
"""Numbers of an item: sequence, first row, rows, first position, end, span (0 where rows of all spans take part),
kind, and for far positions the place of the partial result among those of a row."""
FAR, CAUSAL, PATH, BITS = range(4)
"""Kinds of items: positions that all rows share; near positions by position, by a row's path, by nodes' bits."""
FOLDED_FROM = 128
"""Rows of a sequence from which on one program takes all far spans of some rows, since there are enough programs."""
_ALIGNMENT = 4

Item = tuple[int, int, int, int, int, int, int, int]


class Capacity(NamedTuple):
    """How much tables hold that steps of similar sizes share.

    Attributes:
        rows: most rows of a step, and most sequences.
        items: most items.
        pages: most pages of a sequence.
    """

    rows: int
    items: int
    pages: int

    @property
    def partials(self) -> int:
        """Most partial results of so many rows."""
        return self.rows * (MOST_SPANS + 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Parameters of the cutting.

    Attributes:
        block: rows of a sequence that one program takes.
        by_path: whether near positions of a tree are gathered row by row, so that the tree's shape changes no bits.
    """

    block: int
    by_path: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """Tensors of one step.

    Attributes:
        items: int32 [items, `ITEM`].
        folded: the same of items that take several spans.
        spans: int32 [rows], positions of a far span of each row.
        starts: int32 [rows], index of each row's first partial result.
        counts: int32 [rows], how many partial results each row has.
        paths: int32 [rows, 64], the node at each depth of each row's path.
        contexts: int32 [sequences].
        pages: int32 [sequences, most pages].
        ancestors: int64 [rows], bit j where node j is seen.
        partials: number of partial results of the step.
    """

    items: Tensor
    folded: Tensor
    spans: Tensor
    starts: Tensor
    counts: Tensor
    paths: Tensor
    contexts: Tensor
    pages: Tensor
    ancestors: Tensor
    partials: int

    @classmethod
    def build(cls, batch: RaggedBatch, layout: Layout, page_count: int) -> Tables:
        """The tables of ``batch`` over a pool of ``page_count`` pages.

        Raises:
            ValueError: a tree has more than 64 nodes, or a page is not in the pool.
        """
        works = [_sequence_work(batch, index, layout) for index in range(len(batch.sequences))]
        counts = np.concatenate([work.counts for work in works])
        tables = (
            _items([item for work in works for item in work.items]),
            _items([item for work in works for item in work.folded]),
            np.concatenate([work.spans for work in works]),
            np.cumsum(counts) - counts,
            counts,
            _paths(batch),
            np.array([sequence.context for sequence in batch.sequences]),
            _pages(batch.sequences, page_count),
        )
        device = batch.slots.device
        items, folded, spans, starts, counts_, paths, contexts, pages = _to_device(tables, device)
        ancestors = torch.from_numpy(_ancestors(batch)).to(device)
        return cls(items, folded, spans, starts, counts_, paths, contexts, pages, ancestors, int(counts.sum()))

    @classmethod
    def empty(cls, capacity: Capacity, device: torch.device) -> Tables:
        """Tables without work, to be filled by `load`."""
        rows, items, pages = capacity

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        return cls(
            items=zeros(items, ITEM),
            folded=zeros(0, ITEM),
            spans=zeros(rows),
            starts=zeros(rows),
            counts=zeros(rows),
            paths=zeros(rows, MOST_NODES),
            contexts=zeros(rows),
            pages=zeros(rows, pages),
            ancestors=torch.zeros(rows, dtype=torch.int64, device=device),
            partials=capacity.partials,
        )

    def load(self, step: Tables) -> None:
        """Copies a step's tables into these, which must be large enough; the rest of them holds no work."""
        for name in ("spans", "starts", "paths", "contexts", "ancestors"):
            part = getattr(step, name)
            getattr(self, name)[: len(part)].copy_(part)
        self.pages[: len(step.pages), : step.pages.shape[1]].copy_(step.pages)
        for whole, part in ((self.items, step.items), (self.counts, step.counts)):
            whole[: len(part)].copy_(part)
            whole[len(part) :].zero_()


@dataclass(frozen=True, slots=True)
class _SequenceWork:
    items: list[Item]
    folded: list[Item]
    spans: Indices
    counts: Indices


def _sequence_work(batch: RaggedBatch, index: int, layout: Layout) -> _SequenceWork:
    """The items of one sequence."""
    start, sequence = batch.starts[index], batch.sequences[index]
    positions = batch.host_positions[start : start + sequence.rows]
    far, counts = far_end(positions), np.ones(sequence.rows, np.int64)
    spans = span(far)
    work = _SequenceWork([], [], spans, counts)
    folds = sequence.rows >= FOLDED_FROM
    for width in map(int, np.unique(spans)):
        ends = np.where(spans == width, far, 0)
        counts += np.minimum(-(-ends // width), 1 if folds else MOST_NODES)
        for row, rows in _blocks(sequence.rows, layout.block):
            end = int(ends[row : row + rows].max())
            chunks = [(0, end)] if folds else [(b, min(b + width, end)) for b in range(0, end, width)]
            target = work.folded if folds else work.items
            target += [(index, start + row, rows, *c, width, FAR, i) for i, c in enumerate(chunks) if c[0] < c[1]]
    work.items.extend(_near(index, start, sequence, positions, far, batch.trees[index], layout))
    return work


def _near(
    index: int,
    start: int,
    sequence: SequenceRows,
    positions: Indices,
    far: Indices,
    tree: Tree | None,
    layout: Layout,
) -> Iterator[Item]:
    """Items for the near positions of a sequence's rows."""
    chain = tree is None or sequence.nodes == 1
    by_path = not chain and layout.by_path
    kind = CAUSAL if chain else PATH if by_path else BITS
    for row, rows in _blocks(sequence.rows, 1 if by_path else layout.block):
        begin, last = int(far[row : row + rows].min()), int(positions[row : row + rows].max())
        end = sequence.context + sequence.nodes if kind == BITS else last + 1
        yield (index, start + row, rows, begin, end, 0, kind, 0)


def _blocks(rows: int, block: int) -> Iterator[tuple[int, int]]:
    for row in range(0, rows, block):
        yield row, min(block, rows - row)


def _items(items: list[Item]) -> Indices:
    return np.array(items, np.int64).reshape(-1, ITEM)


def _paths(batch: RaggedBatch) -> Indices:
    paths = np.zeros((batch.rows, MOST_NODES), np.int64)
    for start, sequence, tree in zip(batch.starts, batch.sequences, batch.trees, strict=True):
        if tree is not None:
            rows, nodes = np.nonzero(tree.visible(sequence.rows))
            paths[start + rows, np.array(tree.depths)[nodes]] = nodes
    return paths


def _ancestors(batch: RaggedBatch) -> Indices:
    bits = np.zeros(batch.rows, np.uint64)
    for start, sequence, tree in zip(batch.starts, batch.sequences, batch.trees, strict=True):
        if tree is None:
            continue
        if sequence.nodes > MOST_NODES:
            raise ValueError(f"a tree has {sequence.nodes} nodes; attention on a GPU takes at most {MOST_NODES}")
        bits[start : start + sequence.rows] = tree.paths[-sequence.rows :]
    return bits.view(np.int64)


def _pages(sequences: Sequence[SequenceRows], page_count: int) -> Indices:
    table = np.zeros((len(sequences), max(len(sequence.pages) for sequence in sequences)), np.int64)
    for row, sequence in enumerate(sequences):
        table[row, : len(sequence.pages)] = sequence.pages
    if table.min() < 0 or table.max() >= page_count:
        raise ValueError(
            f"pages {int(table.min())} to {int(table.max())} are named; the pool has 0 to {page_count - 1}"
        )
    return table


def _to_device(tables: Sequence[Indices], device: torch.device) -> list[Tensor]:
    """The tables as int32 on the device, in one transfer; each begins at a multiple of 16 bytes."""
    flat = [table.astype(np.int32).ravel() for table in tables]
    padded = [np.concatenate([part, np.zeros(-len(part) % _ALIGNMENT, np.int32)]) for part in flat]
    whole = torch.from_numpy(np.concatenate(padded))
    on_device = whole.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else whole.to(device)
    parts = torch.split(on_device, [len(part) for part in padded])
    return [p[: len(f)].view(t.shape) for p, f, t in zip(parts, flat, tables, strict=True)]
