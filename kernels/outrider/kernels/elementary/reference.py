"""The elementary functions in torch, of float32 tensors on any device."""

from __future__ import annotations

import torch
from outrider.kernels.elementary.constants import (
    ATANH,
    EXPM1,
    EXPONENT,
    LEAST,
    LN2_HIGH,
    LN2_LOW,
    LN2_PER_BIT,
    LOG2_E,
    MASS_BITS,
    ONE,
    SHIFTER,
    SPLIT,
)
from torch import Tensor


def log(x: Tensor) -> Tensor:
    """Natural logarithm of positive, normal, finite numbers; within 2 ulp, or 2**-23 where it is near 0."""
    bits = x.view(torch.int32)
    exponent = (bits - SPLIT).bitwise_and_(EXPONENT)
    excess = (bits - exponent).view(torch.float32).sub_(1.0)
    return _log1p(excess).add_(exponent.to(torch.float32).mul_(LN2_PER_BIT))


def log_complement(u: Tensor) -> Tensor:
    """``log(1 - u)`` for u from 2**-100 to the largest number below 1; within 4 ulp.

    ``1 - u = 2**k (1 + m)``, where m = ``(2**-k - 1) - 2**-k u`` has no rounding, so that small u keep all their bits.
    """
    exponent = (1.0 - u).view(torch.int32).sub_(SPLIT).bitwise_and_(EXPONENT)
    scale = (ONE - exponent).view(torch.float32)
    excess = (scale - 1.0).sub_(scale * u)
    return _log1p(excess).add_(exponent.to(torch.float32).mul_(LN2_PER_BIT))


def _log1p(m: Tensor) -> Tensor:
    """``log(1 + m) = 2 atanh(m / (2 + m))`` for m from -1/4 to 1/2; overwrites m."""
    s = m.div_(m + 2.0)
    square = s * s
    series = square * ATANH[2]
    series.add_(ATANH[1]).mul_(square).add_(ATANH[0]).mul_(square)
    double = s.add_(s)
    return series.mul_(double).add_(double)


def exp(x: Tensor) -> Tensor:
    """Exponential of numbers up to 0, minus infinity included; within 2 ulp down to `LEAST`, constant below."""
    x = x.clamp(min=LEAST)
    shifted = (x * LOG2_E).add_(SHIFTER)
    power = shifted - SHIFTER
    rest = (x - power * LN2_HIGH).sub_(power.mul_(LN2_LOW))
    series = rest * EXPM1[4]
    for coefficient in EXPM1[3::-1]:
        series.add_(coefficient).mul_(rest)
    scale = (shifted.view(torch.int32) << 23).add_(ONE).view(torch.float32)
    return series.mul_(rest).add_(rest).add_(1.0).mul_(scale)


def mass(x: Tensor) -> Tensor:
    """``exp(x)`` for x up to 0 in units of 2**-40, rounded down: int64, whose sums are exact in any order."""
    return exp(x).mul_(2.0**MASS_BITS).to(torch.int64)
