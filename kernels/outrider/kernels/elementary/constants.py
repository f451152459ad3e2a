"""Numbers that the torch and the Triton form of the elementary functions share.

The coefficients are least maximum fits of relative error over the reduced range, rounded to float32.
"""

from __future__ import annotations

import math

SPLIT = 0x3F400000
"""Bits of 0.75: mantissas are taken from 0.75 to 1.5."""

EXPONENT = -0x800000
"""Mask of a float32's sign and exponent, as int32."""

ONE = 0x3F800000
"""Bits of 1."""

LN2_PER_BIT = math.log(2) * 2.0**-23
"""log(2) divided by the distance of two exponents, seen as integers."""

ATANH = (0.33333474, 0.19978869, 0.15181218)
"""``(atanh(s) / s - 1) / s**2`` as a polynomial in ``s**2``, for s from -1/7 to 1/5; error 3e-9 of the logarithm."""

EXPM1 = (0.5, 0.16666518, 0.041666206, 0.008368953, 0.0013950602)
"""``(exp(r) - 1 - r) / r**2`` as a polynomial in r, for |r| up to log(2) / 2; error 3e-9 of the exponential."""

LOG2_E = 1.44269504
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860677e-06
"""log(2) in two parts; the first has so few bits that its products with exponents are exact."""

SHIFTER = 12582912.0
"""1.5 * 2**23: adding it to a float32 leaves the nearest integer in the lowest bits."""

LEAST = -60.0
"""The exponential of a lesser number is taken as that of this one."""

MASS_BITS = 40
"""Fraction bits of a mass."""

HALF_WORD, WORD_UNIT = 0.5, 2.0**-32
LARGEST_UNIFORM = 1 - 2.0**-24
"""The largest float32 below 1."""
