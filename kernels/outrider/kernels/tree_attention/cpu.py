"""tree_attention in plain torch, piece by piece; data that all layers of a step share are made once."""

from __future__ import annotations

import torch
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.passes import BlockPass, Pass, SoftmaxPass
from outrider.kernels.tree_attention.pieces import Tiling, cut_pieces
from outrider.kernels.tree_attention.spans import LOG2_E
from torch import Tensor


class CpuPlan:
    """One step's attention; see `outrider.kernels.tree_attention`.

    Attributes:
        queries: complex64 [rows, kv_heads, group, head_dim / 2], to be written before each layer's attention: rotated,
            and scaled by ``scale``.
        scale: 1 / sqrt(head_dim), with a tiling times log2(e).
        out: [rows, heads * head_dim] in ``dtype``, the result.
        passes: one for each piece.

    Args:
        batch: the step.
        pool: float32 keys and values.
        heads: of the queries.
        dtype: of the result.
        tiling: None outside of strict mode.
    """

    def __init__(
        self, batch: RaggedBatch, pool: KvPool, heads: int, dtype: torch.dtype, tiling: Tiling | None = None
    ) -> None:
        kv_heads, dim, device = pool.kv_heads, pool.head_dim, pool.data.device
        group, rows = heads // kv_heads, batch.rows
        self.scale = dim**-0.5 * (1.0 if tiling is None else LOG2_E)
        pieces = list(cut_pieces(batch, group, tiling))
        least = 0 if tiling is None else tiling.rows
        counts = [max(piece.rows * group, least) for piece in pieces]
        grouped = torch.zeros(kv_heads, rows * group + least, dim, device=device)
        by_row = grouped[:, : rows * group].view(kv_heads, rows, group, dim).transpose(0, 1)
        self.queries = by_row.view(torch.complex64)
        self.out = torch.empty(rows, heads * dim, dtype=dtype, device=device)
        out = self.out.view(rows, kv_heads, group, dim).transpose(0, 1)
        kind = SoftmaxPass if tiling is None else BlockPass
        sizes = [
            kind.scratch_size(kv_heads * count * piece.columns) for count, piece in zip(counts, pieces, strict=True)
        ]
        scratch = torch.empty(max(sizes), device=device)
        self.passes: list[Pass] = [
            kind(
                piece,
                grouped[:, piece.row * group : piece.row * group + count],
                pool,
                scratch[:size],
                out[:, piece.row : piece.row + piece.rows],
            )
            for piece, count, size in zip(pieces, counts, sizes, strict=True)
        ]

    def attend(self, layer: int) -> Tensor:
        """The result in ``layer``, whose keys and values are written: `out`."""
        for piece in self.passes:
            piece.run(layer)
        return self.out
