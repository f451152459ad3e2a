"""A step's tables for the attention kernels: its rows, its pages, and the list of the programs' work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.tree_attention.spans import MOST_NODES, Indices, far_end, span
from torch import Tensor

ITEM = 7
"""Numbers of an item: sequence, first row, rows, first position, end; then of a far item its span, and the place of
its partial result among those of a row; of a near item 0, and whether its rows are those of a tree."""
FOLDED_FROM = 128
"""Rows of a sequence from which on one program takes all far spans of some rows, since there are enough programs."""
_ALIGNMENT = 4
"""Tables begin at multiples of so many int32."""
_LONG = ("positions", "slots", "ancestors")
"""Tables of int64."""
_NO_WORK = {"items": 0, "folded": 0, "near": 0, "counts": 0, "slots": -1}
"""What stands for no work beyond a step's own."""


class Capacity(NamedTuple):
    """How much tables hold that steps of similar sizes share.

    Attributes:
        rows: most rows of a step, and most sequences.
        items: most items of far positions.
        folded: most items that take several spans.
        pages: most pages of a sequence.
        partials: most partial results of a step.
    """

    rows: int
    items: int
    folded: int
    pages: int
    partials: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Parameters of the cutting.

    Attributes:
        block: rows of a sequence that one program takes, behind far positions.
        near: the same of near positions.
        by_path: whether near positions of a tree are gathered row by row, so that the tree's shape changes no bits.
    """

    block: int
    near: int
    by_path: bool


@dataclass(frozen=True, slots=True)
class StepTables:
    """One step's tables in the host's memory.

    Attributes:
        items: int32 [items, `ITEM`], far positions.
        folded: the same of items that take several spans.
        near: the same of near positions.
        spans: int32 [rows], positions of a far span of each row.
        starts: int32 [rows], index of each row's first partial result.
        counts: int32 [rows], how many partial results each row has.
        paths: int32 [rows, 64], the node at each depth of each row's path.
        contexts: int32 [sequences].
        pages: int32 [sequences, most pages].
        positions: int64 [rows].
        slots: int64 [rows], where each row's keys and values are written; -1 in rows without work.
        ancestors: int64 [rows], bit j where node j is seen.
    """

    items: Indices
    folded: Indices
    near: Indices
    spans: Indices
    starts: Indices
    counts: Indices
    paths: Indices
    contexts: Indices
    pages: Indices
    positions: Indices
    slots: Indices
    ancestors: Indices

    @classmethod
    def build(cls, batch: RaggedBatch, layout: Layout, page_count: int) -> StepTables:
        """The tables of ``batch`` over a pool of ``page_count`` pages.

        Raises:
            ValueError: a tree has more than 64 nodes, or a page is not in the pool.
        """
        rows = _Rows.of(batch)
        far, counts = far_end(rows.positions), np.ones(batch.rows, np.int64)
        spans = span(far)
        counts += np.where(rows.folds, far > 0, -(-far // spans))
        items, folded = _far_items(rows, far, spans, layout.block)
        return cls(
            items=items,
            folded=folded,
            near=_near_items(rows, far, layout),
            spans=spans,
            starts=np.cumsum(counts) - counts,
            counts=counts,
            paths=_paths(rows.ancestors),
            contexts=rows.contexts,
            pages=_pages(batch.sequences, page_count),
            positions=rows.positions,
            slots=batch.host_slots,
            ancestors=rows.ancestors.view(np.int64),
        )

    @property
    def capacity(self) -> Capacity:
        """The least that holds them."""
        partials = int(self.starts[-1] + self.counts[-1])
        return Capacity(len(self.counts), len(self.items), len(self.folded), self.pages.shape[1], partials)


class Tables:
    """Tables on a device, in one buffer, so that a step's are one transfer.

    Attributes:
        items: as `StepTables` describes them, and so are all others.

    Args:
        capacity: what they hold.
        device: of the tensors.
    """

    items: Tensor
    folded: Tensor
    near: Tensor
    spans: Tensor
    starts: Tensor
    counts: Tensor
    paths: Tensor
    contexts: Tensor
    pages: Tensor
    positions: Tensor
    slots: Tensor
    ancestors: Tensor

    def __init__(self, capacity: Capacity, device: torch.device) -> None:
        shapes = _shapes(capacity)
        sizes = [-(-prod(shape) * (1 + (name in _LONG)) // _ALIGNMENT) * _ALIGNMENT for name, shape in shapes.items()]
        self._host = torch.zeros(sum(sizes), dtype=torch.int32, pin_memory=device.type == "cuda")
        self._copied: torch.Event | None = None
        self._buffer = self._host.to(device)
        self._parts = dict[str, Indices]()
        places = zip(shapes.items(), torch.split(self._host, sizes), torch.split(self._buffer, sizes), strict=True)
        for (name, shape), on_host, on_device in places:
            self._parts[name] = _view(on_host, name, shape).numpy()
            setattr(self, name, _view(on_device, name, shape))

    def load(self, step: StepTables) -> None:
        """Copies a step's tables into these, which must be large enough; the rest of them holds no work."""
        if self._copied is not None:
            self._copied.synchronize()
        for name, whole in self._parts.items():
            part = getattr(step, name)
            whole[tuple(map(slice, part.shape))] = part
            if name in _NO_WORK:
                whole[len(part) :] = _NO_WORK[name]
        self._buffer.copy_(self._host, non_blocking=True)
        if self._buffer.is_cuda:
            self._copied = torch.Event(device=self._buffer.device)
            self._copied.record()


def _shapes(capacity: Capacity) -> dict[str, tuple[int, ...]]:
    rows, items, folded, pages, _ = capacity
    counted: dict[str, tuple[int, ...]] = {"items": (items, ITEM), "folded": (folded, ITEM), "near": (rows, ITEM)}
    of_rows: dict[str, tuple[int, ...]] = dict.fromkeys(("spans", "starts", "counts", "contexts", *_LONG), (rows,))
    return counted | of_rows | {"paths": (rows, MOST_NODES), "pages": (rows, pages)}


def _view(part: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    whole = part.view(torch.int64) if name in _LONG else part
    return whole[: prod(shape)].view(shape)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The step's rows, and the sequences that they belong to.

    Attributes:
        sequence: [rows], index of each row's sequence.
        within: [rows], place of each row in its sequence's rows.
        positions: [rows].
        folds: [rows], whether one program takes all far spans.
        contexts: [sequences].
        ends: [sequences], contexts and nodes.
        trees: [sequences], whether the rows are nodes of a tree with more than one.
        ancestors: uint64 [rows], see `Tables`.
    """

    sequence: Indices
    within: Indices
    positions: Indices
    folds: npt.NDArray[np.bool_]
    contexts: Indices
    ends: Indices
    trees: npt.NDArray[np.bool_]
    ancestors: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, batch: RaggedBatch) -> _Rows:
        counts = np.array([sequence.rows for sequence in batch.sequences])
        nodes = np.array([sequence.nodes for sequence in batch.sequences])
        contexts = np.array([sequence.context for sequence in batch.sequences])
        trees = np.array([sequence.parents is not None for sequence in batch.sequences]) & (nodes > 1)
        sequence = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(batch.rows) - np.array(batch.starts)[sequence]
        folds = (counts >= FOLDED_FROM)[sequence]
        ancestors = _ancestors(batch)
        return cls(sequence, within, batch.host_positions, folds, contexts, contexts + nodes, trees, ancestors)

    def blocks(self, size: int | Indices) -> tuple[Indices, Indices]:
        """First rows of blocks of ``size`` rows of a sequence, and the number of rows of each."""
        firsts = np.flatnonzero(self.within % size == 0)
        return firsts, np.diff(firsts, append=len(self.within))


def _far_items(rows: _Rows, far: Indices, spans: Indices, size: int) -> tuple[Indices, Indices]:
    """Items of far positions, and those that take several spans: of each block, those of rows with the same span."""
    firsts, counts = rows.blocks(size)
    block, width, ends = np.repeat(np.arange(len(firsts)), counts), spans, far
    if len(firsts) < len(spans):
        keys, place = np.unique(block * 2**32 + spans, return_inverse=True)
        block, width, ends = keys // 2**32, keys % 2**32, np.zeros(len(keys), np.int64)
        np.maximum.at(ends, place, far)
    folded = rows.folds[firsts[block]]
    pieces = np.where(folded, ends > 0, -(-ends // width))
    item = np.repeat(np.arange(len(block)), pieces)
    index = np.arange(len(item)) - (np.cumsum(pieces) - pieces)[item]
    block, width, ends, folded = block[item], width[item], ends[item], folded[item]
    begin = index * width
    ends = np.where(folded, ends, np.minimum(begin + width, ends))
    items = np.stack([rows.sequence[firsts[block]], firsts[block], counts[block], begin, ends, width, index], 1)
    return items[~folded], items[folded]


def _near_items(rows: _Rows, far: Indices, layout: Layout) -> Indices:
    """Items of near positions."""
    alone = rows.trees & layout.by_path
    firsts, counts = rows.blocks(np.where(alone, 1, layout.near)[rows.sequence])
    sequence = rows.sequence[firsts]
    tree = rows.trees[sequence]
    last = np.maximum.reduceat(rows.positions, firsts) + 1
    ends = last if layout.by_path else np.where(tree, rows.ends[sequence], last)
    begins = np.minimum.reduceat(far, firsts)
    return np.stack([sequence, firsts, counts, begins, ends, np.zeros_like(ends), tree], 1)


def _ancestors(batch: RaggedBatch) -> npt.NDArray[np.uint64]:
    bits = np.zeros(batch.rows, np.uint64)
    for start, sequence, tree in zip(batch.starts, batch.sequences, batch.trees, strict=True):
        if tree is None:
            continue
        if sequence.nodes > MOST_NODES:
            raise ValueError(f"a tree has {sequence.nodes} nodes; attention on a GPU takes at most {MOST_NODES}")
        bits[start : start + sequence.rows] = tree.paths[-sequence.rows :]
    return bits


def _paths(ancestors: npt.NDArray[np.uint64]) -> Indices:
    """The nodes that each row sees, in order: [rows, 64]. A parent comes before its child, so that is by depth."""
    paths = np.zeros((len(ancestors), MOST_NODES), np.int64)
    if not ancestors.any():
        return paths
    row, node = np.nonzero(np.unpackbits(ancestors[:, None].view(np.uint8), axis=1, bitorder="little"))
    first = np.searchsorted(row, row)
    paths[row, np.arange(len(row)) - first] = node
    return paths


def _pages(sequences: Sequence[SequenceRows], page_count: int) -> Indices:
    table = np.zeros((len(sequences), max(len(sequence.pages) for sequence in sequences)), np.int64)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence.pages)] = sequence.pages
    if table.min() < 0 or table.max() >= page_count:
        raise ValueError(
            f"pages {int(table.min())} to {int(table.max())} are named; the pool has 0 to {page_count - 1}"
        )
    return table
