"""The definition of kv_quant."""

from __future__ import annotations

import torch
from outrider.kernels.kv_quant import LARGEST_QUANT, LEAST_PEAK
from torch import Tensor


def quantize(heads: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quants in ``dtype`` of float32 [..., head_dim], and their float32 [...] scales."""
    scales = heads.abs().amax(-1).clamp(min=LEAST_PEAK) / LARGEST_QUANT[dtype]
    scaled = heads / scales[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def dequantize(quants: Tensor, scales: Tensor) -> Tensor:
    """Float32 [..., head_dim] of quants and their [...] scales."""
    return quants.float() * scales[..., None]
