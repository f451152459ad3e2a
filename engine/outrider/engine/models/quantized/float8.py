"""Weights in eight-bit floats (e4m3) with a scale for each block: DeepSeek-V3's and Qwen3's ``fp8``.

``weight`` is float8_e4m3fn [out_features, in_features], ``weight_scale_inv`` has the scale of each block of
``weight_block_size`` output and input features. Rows are meant to be rounded to eight bits when they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.method import GROUP_UNIT, SCALES, StoredQuants, one_of
from outrider.native.quantized import QuantFormat, Quants
from torch import Tensor

WHOLE = 1 << 30
"""Input features of a block that is as wide as the weight."""


@dataclass(frozen=True, slots=True)
class Float8:
    """Eight-bit floats in blocks.

    Attributes:
        block: output and input features that share a scale.
    """

    block: tuple[int, int]

    floats: ClassVar[bool] = True

    @classmethod
    def parse(cls, fields: Fields) -> Float8:
        """The method of a ``quantization_config``; `ModelError` if it is not supported."""
        one_of(fields, "fmt", ("e4m3",), "e4m3")
        one_of(fields, "scale_fmt", ("float",), "float")
        one_of(fields, "activation_scheme", ("dynamic",), "dynamic")
        return cls(block_size(fields, "weight_block_size"))

    def is_quantized(self, source: Checkpoint, module: str) -> bool:
        """See `Method`."""
        return source.has(f"{module}.weight_scale_inv")

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> StoredQuants:
        """See `Method`."""
        scales = source.take_stored(f"{module}.weight_scale_inv", blocks_of(shape, self.block), SCALES)
        return stored_floats(source, module, shape, scales, self.block, rounds_rows=True)


def block_size(fields: Fields, name: str) -> tuple[int, int]:
    """Output and input features of a block."""
    match fields.values.get(name):
        case [int(rows), int(columns)] if rows > 0 and columns > 0 and columns % GROUP_UNIT == 0:
            return rows, columns
    raise fields.wrong(name, f"a list of two whole numbers, the second a multiple of {GROUP_UNIT}")


def blocks_of(shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Blocks along both sides; the last may be smaller."""
    return -(-shape[0] // block[0]), -(-shape[1] // block[1])


def stored_floats(
    source: Checkpoint,
    module: str,
    shape: tuple[int, int],
    scales: Tensor,
    block: tuple[int, int],
    *,
    rounds_rows: bool,
) -> StoredQuants:
    """The weight of a module in e4m3, with ``scales`` of blocks of output and input features."""
    bits = source.take_stored(f"{module}.weight", shape, ("F8_E4M3",)).view(torch.uint8)

    def read(rows: Tensor) -> Quants:
        return Quants(bits[rows], scales[rows // block[0]].float())

    return StoredQuants(QuantFormat(8, block[1], floats=True, rounds_rows=rounds_rows), shape, read)
