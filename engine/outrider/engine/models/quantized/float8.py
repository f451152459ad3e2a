"""Weights in eight-bit floats (e4m3) with a scale for each block: DeepSeek-V3's and Qwen3's ``fp8``.

``weight`` is float8_e4m3fn [out_features, in_features], ``weight_scale_inv`` has the scale of each block of
``weight_block_size`` output and input features. Matmuls are of the dequantized numbers, so the rows that they multiply
keep their own dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engine.models.checkpoint import Checkpoint
from outrider.engine.models.fields import Fields
from outrider.engine.models.quantized.method import SCALES, one_of
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Float8:
    """Eight-bit floats in blocks.

    Attributes:
        block: output and input features that share a scale.
    """

    block: tuple[int, int]

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

    def weight(self, source: Checkpoint, module: str, shape: tuple[int, int]) -> Tensor:
        """See `Method`."""
        scales = source.take_stored(f"{module}.weight_scale_inv", blocks_of(shape, self.block), SCALES)
        return scaled_floats(take_floats(source, module, shape), scales, self.block)


def block_size(fields: Fields, name: str) -> tuple[int, int]:
    """Output and input features of a block."""
    match fields.values.get(name):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise fields.wrong(name, "a list of two whole numbers of at least 1")


def blocks_of(shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Blocks along both sides; the last may be smaller."""
    return -(-shape[0] // block[0]), -(-shape[1] // block[1])


def take_floats(source: Checkpoint, module: str, shape: tuple[int, int]) -> Tensor:
    """The weight of a module in e4m3."""
    return source.take_stored(f"{module}.weight", shape, ("F8_E4M3",))


def scaled_floats(floats: Tensor, scales: Tensor, block: tuple[int, int]) -> Tensor:
    """Floats [out, in] times the scales of their blocks, in float32."""
    rows, columns = floats.shape
    lines = scales.float().repeat_interleave(block[1], 1)[:, :columns]
    numbers = floats.float()
    for first in range(0, rows, block[0]):
        numbers[first : first + block[0]] *= lines[first // block[0]]
    return numbers
