"""The definition of rope_kv_write, one row and head at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(heads: Tensor, angles: Tensor, scale: float) -> Tensor:
    """Rotates the pairs of [rows, heads, head_dim] by float32 [rows, head_dim / 2] radians, and scales: float32."""
    rotated = torch.empty_like(heads, dtype=torch.float32)
    for row, head in torch.cartesian_prod(torch.arange(heads.shape[0]), torch.arange(heads.shape[1])).tolist():
        even, odd = heads[row, head, 0::2].float(), heads[row, head, 1::2].float()
        cos, sin = angles[row].cos(), angles[row].sin()
        rotated[row, head, 0::2] = (even * cos - odd * sin) * scale
        rotated[row, head, 1::2] = (even * sin + odd * cos) * scale
    return rotated
