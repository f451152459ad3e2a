"""kv_quant inside Triton kernels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels import kv_quant
from torch import Tensor

KINDS = {torch.float8_e4m3fn: 1, torch.int8: 2}
"""The compile-time constant of a dtype of quants; 0 is that of every dtype that holds the values themselves."""

_LEAST_PEAK = tl.constexpr(kv_quant.LEAST_PEAK)
_ROUND = tl.constexpr(12582912.0)
"""1.5 * 2^23: a float32 of magnitude below 2^22 loses its fraction when this is added, ties to even."""


def kind(dtype: torch.dtype) -> int:
    """The constant for ``dtype``."""
    return KINDS.get(dtype, 0)


def raw(data: Tensor) -> Tensor:
    """``data`` for kernels: 8-bit floats as their bits, since not every GPU has instructions for them."""
    return data.view(torch.uint8) if data.dtype == torch.float8_e4m3fn else data


@triton.jit
def quantize(heads, KIND: tl.constexpr):
    """Quants of float32 [heads, dim], and their [heads] scales."""
    peak = tl.maximum(tl.max(tl.abs(heads), 1), _LEAST_PEAK)
    if KIND == 1:
        scale = peak / 448.0
        quants = _e4m3(heads / scale[:, None])
    else:
        scale = peak / 127.0
        quants = (heads / scale[:, None] + _ROUND - _ROUND).to(tl.int8)
    return quants, scale


@triton.jit
def _e4m3(x):
    """The bits of float32 of magnitude up to 448 in E4M3, rounded to nearest, ties to even."""
    # By integers, since GPUs before Ada have no conversion: the exponent is rebiased (127 - 7 = 120) and 20 mantissa
    # bits are rounded away; what is below 2**-6 is a multiple of 2**-9, and is rounded as one.
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
    subnormal = (tl.minimum(tl.abs(x), 1.0) * 512.0 + _ROUND - _ROUND).to(tl.int32)
    quant = tl.where(magnitude < 0x3C800000, subnormal, tl.minimum(normal, 0x7E))
    return (quant | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def dequantize(quants, KIND: tl.constexpr):
    """Exact half-precision numbers of quants; times the scale and `unit` they are the values."""
    if KIND == 1:
        # E4M3's bits, shifted into float16's place: the exponent's bias stays 8 too small, which `unit` undoes.
        bits = quants.to(tl.int16)
        return (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return quants.to(tl.float16)


@triton.jit
def unit(KIND: tl.constexpr):
    """The factor of the scales: E4M3's exponents, read as half precision's, are 8 too small."""
    return 256.0 if KIND == 1 else 1.0
