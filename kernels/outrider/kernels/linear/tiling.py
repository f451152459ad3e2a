"""Divides a matmul between programs, such that the number of rows shows in no bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from outrider.kernels.launch import Config
from outrider.kernels.linear.packed_weight import PackedWeight
from outrider.kernels.linear.quantize import GROUP

FEW_ROWS = 16
_PROGRAMS = 132
"""Programs that splits of the input features aim at: one per multiprocessor of an H100 or H200."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The work of one program.

    Attributes:
        rows: of x.
        columns: output features.
        slices: slices of the input features in a step, each multiplied by one warp; their sums are added at the end.
        words: of each slice in a step.
        splits: shares of a tile's input features, each summed by itself; then their sums are added in order.
        config: of the compilation.
        joined: whether one program takes all shares, where rows alone make enough programs.
    """

    rows: int
    columns: int
    slices: int
    words: int
    splits: int
    config: Config
    joined: bool = False


def tile_of(weight: PackedWeight, rows: int, *, strict: bool) -> Tile:
    """The tile for ``rows`` rows.

    In strict mode a row has the same bits in all tiles of a weight. They differ in their rows, their warps, and in who
    adds the shares: tensor cores add an output's terms in the same order whatever the tile's rows are (measured on
    an H100). What divides the input features depends on the weight alone.
    """
    aligned = weight.in_features % 16 == 0 and weight.out_features % 16 == 0
    many_outputs = weight.out_features > 64 * _PROGRAMS
    fine = weight.minima is not None or 0 < weight.group < GROUP
    words = 128 if weight.fp8 else weight.span or 64
    if weight.dtype == torch.float32:
        words = 32 if weight.parts == 1 else words
        return Tile(16, 32, 1, words, _splits(weight, 32, words), Config(warps=4, stages=2))
    if not strict and rows <= FEW_ROWS and not weight.fp8:
        columns = 64 if many_outputs and weight.parts == 4 and not fine else 32
        return Tile(FEW_ROWS, columns, 4, words, 1, Config(warps=4, stages=4 if aligned else 2))
    tile = Tile(64, 128, 1, words, _splits(weight, 128, words), Config(warps=8, stages=4))
    if not aligned or fine:
        return tile
    if rows <= FEW_ROWS:
        return replace(tile, rows=FEW_ROWS, config=Config(warps=4, stages=4))
    if rows <= 64 or weight.parts > 1:
        return tile
    # Sums of groups take as many registers as the total: 128 rows would spill.
    if not weight.group and (weight.fp8 or tile.splits == 1):
        return replace(tile, rows=128, joined=True, config=Config(warps=8, stages=3))
    return replace(tile, joined=True)


def _splits(weight: PackedWeight, columns: int, words: int) -> int:
    steps = -(-weight.in_features // (words * weight.parts))
    tiles = -(-weight.out_features // columns)
    return max(1, min(-(-_PROGRAMS // tiles), steps // 4, 8))
