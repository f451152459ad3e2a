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
        config: of the compilation.
    """

    rows: int
    tile: int
    config: Config


def far_shape(dtype: torch.dtype, pool: KvPool, rows: int) -> BlockShape:
    """The shape for far positions of sequences of up to ``rows`` rows times heads.

    A row has the same bits in both shapes of a dtype: tiles are the same, no sum is shared between warps, and tensor
    cores add the terms of 16-bit numbers in one order in both of their instructions (``mma.sync`` and ``wgmma``,
    measured on an H100). With quants of 8 bits the instructions take the elements of a head in different orders.
    """
    if dtype == torch.float32 or pool.head_dim > 128:
        return near_shape(dtype, pool)
    if pool.scales is not None:
        return BlockShape(16, 32, Config(1, 2, fused=False))
    if rows <= 16:
        return BlockShape(16, 64, Config(1, 3, fused=False))
    return BlockShape(64, 64, Config(4, 3, fused=False))


def near_shape(dtype: torch.dtype, pool: KvPool) -> BlockShape:
    """The shape for near positions, and for far ones where there is no other."""
    if dtype == torch.float32 and pool.head_dim > 128:
        return BlockShape(16, 16, Config(8, 1, fused=False))
    if dtype == torch.float32:
        return BlockShape(16, 32, Config(4, 2 if pool.head_dim <= 64 else 1, fused=False))
    if pool.head_dim > 128:
        return BlockShape(32, 64, Config(8, 1, fused=False))
    return BlockShape(16, 64, Config(2, 2, fused=False))
