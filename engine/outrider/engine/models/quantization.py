"""Weights that are put into quants when they are loaded, for the compiled decoder."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.kernels.linear import quantize_int4, quantize_int8
from outrider.native.quantized import QuantFormat, QuantizedWeight, Quants
from torch import Tensor

_CHUNK = 32
_GROUP = 128
AT_LOAD = {"int8": _CHUNK, "int4": _GROUP}
"""Quantizations, and the number that divides the input features of their weights."""


@dataclass(frozen=True, slots=True)
class _Rounded:
    """A `QuantizedWeight` whose rows are rounded when they are asked for: a few at a time are in float32."""

    weight: Tensor
    format: QuantFormat

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.weight.shape
        return rows, columns

    def quants(self, rows: Tensor) -> Quants:
        weight = self.weight[rows]
        if self.format.bits == 8:
            scaled = quantize_int8(weight)
            return Quants((scaled.quants.short() + 128).byte(), scaled.scales[:, None])
        grouped = quantize_int4(weight)
        return Quants(grouped.quants, grouped.scales, grouped.scales * grouped.zeros)


def codes_at_load(weight: Tensor, quantization: str) -> QuantizedWeight:
    """The quants of ``weight``, [out_features, in_features], that matmuls on a GPU have, too."""
    eight = quantization == "int8"
    form = QuantFormat(8, weight.shape[1], zero=128) if eight else QuantFormat(4, _GROUP, has_minima=True)
    return _Rounded(weight, form)
