"""One piece's attention in one layer, in a few matmuls over views that are made once a step."""

from __future__ import annotations

from typing import Protocol

import torch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.pieces import Piece
from torch import Tensor

_LANES = 32
"""Elements of float32 per turn of torch's widest vector loops; the remainder may get other bits."""
_PARALLEL_FROM = 32768
"""Elements from which torch divides an elementwise operator between threads."""


class Pass(Protocol):
    """Computes one piece's attention."""

    def run(self, layer: int) -> None:
        """Writes the piece's result in ``layer``, whose queries, keys and values are written."""
        ...


class _PieceViews:
    """A piece's tensors.

    Args:
        piece: rows and columns.
        queries: float32 [kv_heads, n, head_dim], n at least rows * group; queries beyond those are ignored.
        pool: keys and values.
        scratch: float32 [`scratch_size` of kv_heads * n * columns], shared with other pieces.
        out: [kv_heads, rows, group, head_dim] for the result.
    """

    def __init__(self, piece: Piece, queries: Tensor, pool: KvPool, scratch: Tensor, out: Tensor) -> None:
        kv_heads, row_count, _ = queries.shape
        self._queries = queries
        self._out = out
        self._shape = out.shape
        self._used_rows = out.shape[1] * out.shape[2]
        self._flat = scratch
        self._scores = scratch[: kv_heads * row_count * piece.columns].view(kv_heads, row_count, piece.columns)
        self._masked = self._scores[:, : self._used_rows, piece.masked_from :]
        self._mask = piece.mask
        self._edge = piece.edge
        if piece.edge is not None:
            self._partly = self._scores[:, : self._used_rows, : piece.edge.shape[1]]
        self._pool = pool
        self._gathered = piece.gathered
        if piece.gathered is None:
            self._keys = pool.keys(piece.start, piece.columns)

    def _score(self, keys: Tensor) -> None:
        torch.bmm(self._queries, keys, out=self._scores)
        if self._mask is not None:
            self._masked.add_(self._mask)
        if self._edge is not None:
            self._partly.add_(self._edge)


class SoftmaxPass(_PieceViews):
    """One softmax over all columns: the quickest way, outside of strict mode."""

    def __init__(self, piece: Piece, queries: Tensor, pool: KvPool, scratch: Tensor, out: Tensor) -> None:
        super().__init__(piece, queries, pool, scratch, out)
        if piece.gathered is None:
            self._values = pool.values(piece.start, piece.columns)

    @staticmethod
    def scratch_size(size: int) -> int:
        """Elements of scratch for scores of ``size`` elements."""
        return size

    def run(self, layer: int) -> None:
        """Writes the piece's result in ``layer``."""
        if self._gathered is None:
            keys, values = self._keys[layer], self._values[layer]
        else:
            keys, values = self._pool.gather(layer, self._gathered)
        self._score(keys)
        self._out.copy_(torch.bmm(self._scores.softmax(-1), values).view(self._shape))


class BlockPass(_PieceViews):
    """Sums in the order of positions, block after block, which columns of weight zero do not change.

    A row's greatest score is exact in any order, and each weight is computed by itself. Matmuls add a block's columns
    in their order (the property that a `Tiling` is probed for), and a running sum adds the weights in their order.
    """

    def __init__(self, piece: Piece, queries: Tensor, pool: KvPool, scratch: Tensor, out: Tensor) -> None:
        super().__init__(piece, queries, pool, scratch, out)
        self._blocks = piece.blocks
        self._weights = [self._scores[:, :, first:end] for first, end in piece.blocks]
        if piece.gathered is None:
            self._values = [pool.values(piece.start + first, end - first) for first, end in piece.blocks]

    @staticmethod
    def scratch_size(size: int) -> int:
        """Elements of scratch, such that elementwise loops cover ``size`` in whole vectors on any number of threads."""
        shares = min(torch.get_num_threads(), -(-size // _PARALLEL_FROM))
        unit = _LANES * shares
        return -(-size // unit) * unit

    def run(self, layer: int) -> None:
        """Writes the piece's result in ``layer``."""
        if self._gathered is None:
            keys, blocks = self._keys[layer], [values[layer] for values in self._values]
        else:
            keys, values = self._pool.gather(layer, self._gathered)
            blocks = [values[:, first:end] for first, end in self._blocks]
        self._score(keys)
        self._scores.sub_(self._scores.amax(-1, keepdim=True))
        self._flat.exp2_()
        total = torch.bmm(self._weights[0], blocks[0])
        for weights, values in zip(self._weights[1:], blocks[1:], strict=True):
            total.baddbmm_(weights, values)
        total.div_(self._scores.cumsum(-1)[:, :, -1:])
        self._out.copy_(total[:, : self._used_rows].view(self._shape))
