"""Weights that are put into quants when they are loaded, for the compiled decoder."""

from __future__ import annotations

from outrider.kernels.linear import quantize_int4, quantize_int8
from outrider.native.quantized import QuantFormat, QuantizedWeight, Quants, QuantsInMemory
from torch import Tensor

_CHUNK = 32
_GROUP = 128
AT_LOAD = {"int8": _CHUNK, "int4": _GROUP}
"""Quantizations, and the number that divides the input features of their weights."""


def codes_at_load(weight: Tensor, quantization: str) -> QuantizedWeight:
    """The quants of ``weight``, [out_features, in_features], that matmuls on a GPU have, too."""
    if quantization == "int8":
        scaled = quantize_int8(weight)
        quants = (scaled.quants.short() + 128).byte()
        return QuantsInMemory(QuantFormat(8, weight.shape[1], zero=128), Quants(quants, scaled.scales[:, None]))
    grouped = quantize_int4(weight)
    minima = grouped.scales * grouped.zeros
    return QuantsInMemory(QuantFormat(4, _GROUP, has_minima=True), Quants(grouped.quants, grouped.scales, minima))
