"""The elementary functions inside Triton kernels, which must be compiled with ``Config(fused=False)``."""

from __future__ import annotations

import triton
import triton.language as tl
from outrider.kernels.elementary import constants

_SPLIT = tl.constexpr(constants.SPLIT)
_EXPONENT = tl.constexpr(constants.EXPONENT)
_ONE = tl.constexpr(constants.ONE)
_LN2_PER_BIT = tl.constexpr(constants.LN2_PER_BIT)
_A0, _A1, _A2 = (tl.constexpr(value) for value in constants.ATANH)
_E0, _E1, _E2, _E3, _E4 = (tl.constexpr(value) for value in constants.EXPM1)
_LOG2_E = tl.constexpr(constants.LOG2_E)
_LN2_HIGH, _LN2_LOW = tl.constexpr(constants.LN2_HIGH), tl.constexpr(constants.LN2_LOW)
_SHIFTER = tl.constexpr(constants.SHIFTER)
_LEAST = tl.constexpr(constants.LEAST)
_MASS_UNIT = tl.constexpr(2.0**constants.MASS_BITS)


@triton.jit
def log(x):
    """See `reference.log`."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - _SPLIT) & _EXPONENT
    excess = (bits - exponent).to(tl.float32, bitcast=True) - 1.0
    return _log1p(excess) + exponent.to(tl.float32) * _LN2_PER_BIT


@triton.jit
def log_complement(u):
    """See `reference.log_complement`."""
    exponent = ((1.0 - u).to(tl.int32, bitcast=True) - _SPLIT) & _EXPONENT
    scale = (-exponent + _ONE).to(tl.float32, bitcast=True)
    excess = (scale - 1.0) - scale * u
    return _log1p(excess) + exponent.to(tl.float32) * _LN2_PER_BIT


@triton.jit
def _log1p(m):
    s = tl.math.div_rn(m, m + 2.0)
    square = s * s
    series = ((square * _A2 + _A1) * square + _A0) * square
    double = s + s
    return series * double + double


@triton.jit
def exp(x):
    """See `reference.exp`."""
    x = tl.maximum(x, _LEAST)
    shifted = x * _LOG2_E + _SHIFTER
    power = shifted - _SHIFTER
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    series = (((rest * _E4 + _E3) * rest + _E2) * rest + _E1) * rest + _E0
    scale = ((shifted.to(tl.int32, bitcast=True) << 23) + _ONE).to(tl.float32, bitcast=True)
    return ((series * rest) * rest + rest + 1.0) * scale


@triton.jit
def mass(x):
    """See `reference.mass`."""
    return (exp(x) * _MASS_UNIT).to(tl.int64)
