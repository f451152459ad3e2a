"""What all layers of a step share: its pieces, their views of the pool, and the buffers between the operators."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.pieces import Piece, Tiling, cut
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PieceViews:
    """A piece's tensors.

    Attributes:
        queries: float32 [kv_heads, n, head_dim], n at least rows * group: rows first, heads of a group within.
        seen: rows * group, how many of them are the piece's own.
        keys: of each layer [kv_heads, head_dim, columns], values: [kv_heads, columns, head_dim]; empty where they
            must be gathered.
        mask: float32 [rows * group, columns - masked_from] or None.
        out: [kv_heads, rows, group, head_dim], where the result goes.
    """

    piece: Piece
    queries: Tensor
    seen: int
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask: Tensor | None
    out: Tensor


class AttentionPlan:
    """One step's attention.

    Attributes:
        queries: complex64 [rows, kv_heads, group, head_dim / 2], to be written before each layer's attention.
        out: [rows, heads * head_dim], written by it, in ``dtype``.
        views: the pieces.
        tiling: None where speed comes before bits.
    """

    def __init__(
        self, batch: RaggedBatch, pool: KvPool, heads: int, dtype: torch.dtype, tiling: Tiling | None = None
    ) -> None:
        kv_heads, dim, device = pool.kv_heads, pool.head_dim, pool.data.device
        group, rows = heads // kv_heads, batch.rows
        self.tiling = tiling
        self.pool = pool
        spare = tiling.rows if tiling is not None else 0
        self._packed = torch.zeros(kv_heads, rows * group + spare, dim, device=device)
        grouped = self._packed[:, : rows * group].view(kv_heads, rows, group, dim).transpose(0, 1)
        self.queries = grouped.view(torch.complex64)
        self.out = torch.empty(rows, heads * dim, dtype=dtype, device=device)
        self._out = self.out.view(rows, kv_heads, group, dim).transpose(0, 1)
        self.views = [self._view(piece, group) for piece in cut(batch, tiling)]

    def _view(self, piece: Piece, group: int) -> PieceViews:
        seen = piece.rows * group
        held = seen if self.tiling is None else max(seen, self.tiling.rows)
        start = piece.row * group
        mask = piece.mask if piece.mask is None or group == 1 else piece.mask.repeat_interleave(group, 0)
        consecutive = piece.gathered is None
        return PieceViews(
            piece,
            self._packed[:, start : start + held],
            seen,
            self.pool.keys(piece.start, piece.columns) if consecutive else (),
            self.pool.values(piece.start, piece.columns) if consecutive else (),
            mask,
            self._out[:, piece.row : piece.row + piece.rows],
        )
