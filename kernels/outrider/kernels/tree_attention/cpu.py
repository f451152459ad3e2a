"""tree_attention in plain torch, piece by piece; data that all layers of a step share are made once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.passes import BlockPass, Pass, SoftmaxPass
from outrider.kernels.tree_attention.pieces import Piece, Tiling, cut_pieces
from outrider.kernels.tree_attention.spans import LOG2_E, effective_windows
from torch import Tensor


class CpuPlan:
    """One step's attention; see `outrider.kernels.tree_attention`.

    Attributes:
        queries: complex64 [rows, kv_heads, group, head_dim / 2], to be written before each layer's attention: rotated,
            and scaled by ``scale``.
        scale: 1 / sqrt(head_dim), with a tiling times log2(e).
        out: [rows, heads * head_dim] in ``dtype``, the result.

    Args:
        batch: the step.
        pool: float32 keys and values.
        heads: of the queries.
        dtype: of the result.
        tiling: None outside of strict mode.
        windows: the sliding window of each layer, None where rows see everything; empty where all layers do.
    """

    def __init__(
        self,
        batch: RaggedBatch,
        pool: KvPool,
        heads: int,
        dtype: torch.dtype,
        tiling: Tiling | None = None,
        windows: Sequence[int | None] = (),
    ) -> None:
        kv_heads, dim, device = pool.kv_heads, pool.head_dim, pool.data.device
        self._group, rows = heads // kv_heads, batch.rows
        self.scale = dim**-0.5 * (1.0 if tiling is None else LOG2_E)
        self._tiling, self._pool = tiling, pool
        least = 0 if tiling is None else tiling.rows
        self._grouped = torch.zeros(kv_heads, rows * self._group + least, dim, device=device)
        by_row = self._grouped[:, : rows * self._group].view(kv_heads, rows, self._group, dim).transpose(0, 1)
        self.queries = by_row.view(torch.complex64)
        self.out = torch.empty(rows, heads * dim, dtype=dtype, device=device)
        self._windows = effective_windows(windows, batch)
        self._passes = {window: self._cut(batch, window) for window in {*self._windows} or {None}}

    def attend(self, layer: int) -> Tensor:
        """The result in ``layer``, whose keys and values are written: `out`."""
        for piece in self._passes[self._windows[layer] if self._windows else None]:
            piece.run(layer)
        return self.out

    def _cut(self, batch: RaggedBatch, window: int | None) -> list[Pass]:
        """A pass for each piece."""
        pieces = list(cut_pieces(batch, self._group, self._tiling, window))
        kind = SoftmaxPass if self._tiling is None else BlockPass
        least = 0 if self._tiling is None else self._tiling.rows
        counts = [max(piece.rows * self._group, least) for piece in pieces]
        sizes = [
            kind.scratch_size(self._pool.kv_heads * count * piece.columns)
            for count, piece in zip(counts, pieces, strict=True)
        ]
        scratch = torch.empty(max(sizes), device=self._grouped.device)
        return [
            kind(piece, self._queries_of(piece, count), self._pool, scratch[:size], self._out_of(piece))
            for piece, count, size in zip(pieces, counts, sizes, strict=True)
        ]

    def _queries_of(self, piece: Piece, count: int) -> Tensor:
        return self._grouped[:, piece.row * self._group : piece.row * self._group + count]

    def _out_of(self, piece: Piece) -> Tensor:
        by_row = self.out.view(len(self.out), self._pool.kv_heads, self._group, self._pool.head_dim)
        return by_row.transpose(0, 1)[:, piece.row : piece.row + piece.rows]
