"""kv_quant: keys and values in 8 bits, each head of each token with a scale of its own.

A head's scale is its greatest magnitude over the greatest quant's, so it is known when the head is written, needs
no calibration, and depends on no other row. Quants are 8-bit floats (Micikevicius et al. 2022, "FP8 formats for deep
learning", E4M3) or integers, symmetric about zero.
"""

from __future__ import annotations

import torch

__all__ = ["LARGEST_QUANT", "LEAST_PEAK"]

LARGEST_QUANT = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
"""The dtypes of quants, and the greatest magnitude each takes."""

LEAST_PEAK = 1e-30
"""Heads whose greatest magnitude is below this are scaled as if it were this."""
