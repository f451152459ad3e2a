"""Cuts a step's attention into pieces: rows that attend together, and the columns (tokens) that they attend to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows, Tree, row_slots
from torch import Tensor

_CHUNK_ROWS = 128
"""Rows of a causal chunk that attend together: little waste above the diagonal, and a bound on the scores."""

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes within which this machine's matmuls give a row the same bits whatever the other rows are.

    Attributes:
        rows: fewest rows (times heads of a group) in a matmul.
        least: fewest columns of a block; shorter blocks are padded with columns of weight zero.
        most: most columns of a block.
        block: positions of a block; further columns belong to other branches and have weight zero.
    """

    rows: int
    least: int
    most: int
    block: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of the step that attend together.

    Attributes:
        row: first row in the step.
        rows: number of rows.
        columns: number of columns.
        start: slot of the first column, where the columns' slots are consecutive.
        gathered: int64 [columns] slots, where they are not consecutive.
        mask: float32 [rows * group, columns - masked_from] to add to the last columns' scores; None masks nothing.
        masked_from: first column under the mask.
        edge: float32 [rows * group, n] to add to the scores of the first n columns, which the windows of some rows
            leave out; None masks nothing.
        blocks: ranges of columns that are summed one after the other.
    """

    row: int
    rows: int
    columns: int
    start: int
    gathered: Tensor | None
    mask: Tensor | None
    masked_from: int
    edge: Tensor | None
    blocks: Sequence[tuple[int, int]]


def cut_pieces(batch: RaggedBatch, group: int, tiling: Tiling | None, window: int | None = None) -> Iterator[Piece]:
    """The pieces of a step of ``group`` heads a key head; without a tiling each piece is one block.

    With a ``window``, a row sees no more than so many of the latest positions, its own included.
    """
    for start, sequence, tree in zip(batch.starts, batch.sequences, batch.trees, strict=True):
        builder = _PieceBuilder(sequence, batch, group, tiling, window)
        if tree is None:
            yield from builder.chunk(start)
        elif builder.fits(tree):
            yield builder.tree(start, tree)
        else:
            yield from builder.paths(start, tree)


class _PieceBuilder:
    """Makes the pieces of one sequence's rows."""

    def __init__(
        self, sequence: SequenceRows, batch: RaggedBatch, group: int, tiling: Tiling | None, window: int | None
    ) -> None:
        self._sequence = sequence
        self._page_size = batch.page_size
        self._device = batch.slots.device
        self._group = group
        self._tiling = tiling
        self._window = window

    def fits(self, tree: Tree) -> bool:
        """Whether the tree's nodes fit into the block in which the tree begins."""
        if self._tiling is None:
            return True
        return self._sequence.context % self._tiling.block + len(tree.depths) <= self._tiling.most

    def chunk(self, start: int) -> Iterator[Piece]:
        """The pieces of a causal chunk."""
        sequence = self._sequence
        for row in range(0, sequence.rows, _CHUNK_ROWS):
            nodes = np.arange(min(_CHUNK_ROWS, sequence.rows - row))
            first = sequence.context + row
            visible = None if len(nodes) == 1 else np.tri(len(nodes), dtype=np.bool_)
            yield self._piece(start + row, len(nodes), first, nodes, nodes, visible)

    def tree(self, start: int, tree: Tree) -> Piece:
        """The piece of a tree, each of whose rows sees its path."""
        sequence = self._sequence
        visible = None if sequence.nodes == 1 else tree.visible(sequence.rows)
        nodes = np.arange(sequence.nodes)
        return self._piece(start, sequence.rows, sequence.context, nodes, np.array(tree.depths), visible)

    def paths(self, start: int, tree: Tree) -> Iterator[Piece]:
        """The pieces of a tree, one for each row with its path."""
        sequence = self._sequence
        for row, path in enumerate(tree.paths[-sequence.rows :]):
            nodes = np.array([node for node in range(path.bit_length()) if path >> node & 1])
            yield self._piece(start + row, 1, sequence.context, nodes, np.arange(len(nodes)), None)

    def _piece(self, row: int, rows: int, first: int, nodes: Indices, depths: Indices, visible: Flags | None) -> Piece:
        """The piece of rows that see all tokens before ``first``, and of ``first + nodes`` the ``visible`` ones.

        The latter have the positions ``first + depths``; those of the rows are the last of these.
        """
        begin, edge, visible = self._within_window(first, depths, rows, visible)
        columns = first + len(nodes) - begin
        whole = 0 if self._tiling is None else first - first % self._tiling.block - begin
        if self._tiling is None or _in_one_block(first - begin - whole, nodes, depths, self._tiling):
            blocks = [(0, columns)] if self._tiling is None else _ranges(whole, [columns - whole], self._tiling.block)
            start, gathered = self._locate(begin, columns, None)
            mask, masked_from = self._mask(visible), first - begin
            return Piece(row, rows, columns, start, gathered, mask, masked_from, self._mask(edge), blocks)
        shared = first - begin - whole
        order, lengths = _order_by_block(shared, depths, self._tiling)
        tokens = np.concatenate([np.arange(begin + whole, first), first + nodes])[order]
        tokens[order < 0] = 0
        columns = whole + len(tokens)
        start, gathered = self._locate(begin, columns, tokens)
        mask = self._mask(_reorder(visible, rows, shared, order))
        blocks = _ranges(whole, lengths, self._tiling.block)
        return Piece(row, rows, columns, start, gathered, mask, whole, self._mask(edge), blocks)

    def _within_window(
        self, first: int, depths: Indices, rows: int, visible: Flags | None
    ) -> tuple[int, Flags | None, Flags | None]:
        """The first column's token, which of the first columns each row sees, and ``visible`` without what it does not.

        The first token is a multiple of the tiling's block, so that a row's blocks are the same in every piece.
        """
        if self._window is None or first + int(depths.max()) < self._window:
            return 0, None, visible
        lows = (first + depths[-rows:] - self._window + 1)[:, None]
        begin, most = min(max(int(lows.min()), 0), first), int(lows.max())
        begin -= 0 if self._tiling is None else begin % self._tiling.block
        partly = np.arange(begin, min(most, first))
        if most > first:
            visible = (first + depths >= lows) & (True if visible is None else visible)
        return begin, partly >= lows if len(partly) else None, visible

    def _locate(self, begin: int, columns: int, tail: Indices | None) -> tuple[int, Tensor | None]:
        """The first column's slot if slots are consecutive, else all slots; the last columns are tokens ``tail``.

        The columns before those are tokens from ``begin`` on.
        """
        sequence, size = self._sequence, self._page_size
        in_order = tail is None or bool((tail == np.arange(begin + columns - len(tail), begin + columns)).all())
        pages = sequence.pages[begin // size : (begin + columns + size - 1) // size]
        if in_order and list(pages) == list(range(pages[0], pages[0] + len(pages))):
            return pages[0] * size + begin % size, None
        slots = row_slots(sequence, size, 0, sequence.context + sequence.nodes)
        if tail is None:
            return -1, torch.from_numpy(slots[begin : begin + columns]).to(self._device)
        chosen = np.concatenate([slots[begin : begin + columns - len(tail)], slots[tail]])
        return -1, torch.from_numpy(chosen).to(self._device)

    def _mask(self, visible: Flags | None) -> Tensor | None:
        if visible is None:
            return None
        weights = np.where(visible, np.float32(0), np.float32("-inf"))
        return torch.from_numpy(weights.repeat(self._group, 0)).to(self._device)


def _in_one_block(shared: int, nodes: Indices, depths: Indices, tiling: Tiling) -> bool:
    """Whether all nodes, with the ``shared`` columns of their first block, form one block without padding."""
    return (
        bool(nodes[-1] == len(nodes) - 1)
        and shared + len(nodes) >= tiling.least
        and shared + int(depths.max()) < tiling.block
    )


def _order_by_block(shared: int, depths: Indices, tiling: Tiling) -> tuple[Indices, list[int]]:
    """An order of columns by the block of their position, each block padded, and the blocks' lengths.

    The columns are ``shared`` ones from the start of a block on, and those of nodes, at ``depths`` behind them. The
    order is stable, so that each row's path stays in the order of its positions; -1 stands for padding.
    """
    blocks = np.concatenate([np.zeros(shared, np.int64), (depths + shared) // tiling.block])
    parts, lengths = [], []
    for block in range(int(blocks.max()) + 1):
        columns = np.flatnonzero(blocks == block)
        fill = max(tiling.least - len(columns), 0) if len(columns) else 0
        parts += [columns, np.full(fill, -1)]
        lengths.append(len(columns) + fill)
    return np.concatenate(parts), lengths


def _reorder(visible: Flags | None, rows: int, shared: int, order: Indices) -> Flags | None:
    """Which columns in ``order`` each row sees, from ``visible`` for the columns behind the ``shared`` ones."""
    if visible is None and order[-1] >= 0:
        return None
    nodes = visible if visible is not None else np.ones((rows, int(order.max()) + 1 - shared), np.bool_)
    seen = np.concatenate([np.ones((rows, shared), np.bool_), nodes], axis=1)
    reordered: Flags = seen[:, order] & (order >= 0)
    return reordered


def _ranges(whole: int, lengths: Sequence[int], block: int) -> list[tuple[int, int]]:
    """The whole blocks before column ``whole``, and those of ``lengths`` behind it."""
    ends = [*range(0, whole, block), *accumulate(lengths, initial=whole)]
    return list(pairwise(ends))
