"""Divides a product between programs, by the weight's shape and format and never by the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

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
        splits: programs that share a tile's input features.
        config: of the compilation.
    """

    rows: int
    columns: int
    slices: int
    words: int
    splits: int
    config: Config


def tile_of(weight: PackedWeight, few: bool) -> Tile:
    """The tile for products with ``weight``; it depends on its shape and format alone, and on whether rows are few."""
    aligned = weight.in_features % 16 == 0 and weight.out_features % 16 == 0
    many_outputs = weight.out_features > 64 * _PROGRAMS
    fine = weight.minima is not None or 0 < weight.group < GROUP
    words = weight.span or 64
    if weight.dtype == torch.float32:
        words = 32 if weight.parts == 1 else words
        return Tile(16, 32, 1, words, _splits(weight, 32, words), Config(warps=4, stages=2))
    if weight.fp8:
        return Tile(64, 128, 1, 128, _splits(weight, 128, 128), Config(warps=4 if aligned else 8, stages=4))
    if few:
        return Tile(
            FEW_ROWS,
            64 if many_outputs and weight.parts == 4 and not fine else 32,
            4,
            words,
            1,
            Config(warps=4, stages=4 if aligned else 2),
        )
    warps = 4 if aligned and not fine else 8
    return Tile(64, 128, 1, words, _splits(weight, 128, words), Config(warps=warps, stages=4))


def _splits(weight: PackedWeight, columns: int, words: int) -> int:
    steps = -(-weight.in_features // (words * weight.parts))
    tiles = -(-weight.out_features // columns)
    return max(1, min(-(-_PROGRAMS // tiles), steps // 4, 8))
