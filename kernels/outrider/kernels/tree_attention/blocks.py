"""The work of one program of the attention kernels, by dtype and class of shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.launch import Config
from outrider.kernels.pool import KvPool


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The work of one program.

    Attributes:
        rows: rows times heads of a group.
        tile: positions loaded at once.
        config: the same for every kind of work, so that a row's sums keep one order.
        folds: whether sequences of this shape can be long enough to fold their spans themselves.
    """

    rows: int
    tile: int
    config: Config
    folds: bool = True


def block_shape(dtype: torch.dtype, pool: KvPool, rows: int, strict: bool) -> BlockShape:
    """The shape for sequences of up to ``rows`` rows times heads; in strict mode ``rows`` changes nothing.

    No supported compiler spills registers with these shapes.
    """
    if dtype == torch.float32 and pool.head_dim > 128:
        return BlockShape(16, 16, Config(8, 1, fused=False))
    if dtype == torch.float32:
        return BlockShape(16, 32, Config(4, 2 if pool.head_dim <= 64 else 1, fused=False))
    if pool.head_dim > 128:
        return BlockShape(32, 64, Config(8, 1, fused=False))
    if pool.scales is not None:
        return BlockShape(32, 64, Config(8, 2, fused=False))
    if strict or rows > 16:
        return BlockShape(64, 64, Config(8, 2, fused=False))
    return BlockShape(16, 64, Config(4, 3, fused=False), folds=False)
