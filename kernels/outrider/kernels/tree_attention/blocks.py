"""What one program of the attention kernels takes: fixed by dtype and shape class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.launch import Config
from outrider.kernels.pool import KvPool


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What one program takes.

    Attributes:
        rows: rows times heads of a group.
        tile: positions loaded at once.
        config: the same for every kind of work, lest a row's sums come in another order.
        folds: whether sequences of this shape can be long enough to fold their spans themselves.
    """

    rows: int
    tile: int
    config: Config
    folds: bool = True


def block_shape(dtype: torch.dtype, pool: KvPool, rows: int, strict: bool) -> BlockShape:
    """The shape for sequences of up to ``rows`` rows times heads, which matter only where bits may depend on them.

    Chosen so that no compiler of the supported range keeps registers in memory.
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
