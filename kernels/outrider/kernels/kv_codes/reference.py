"""The definition of kv_codes."""

from __future__ import annotations

import torch
from outrider.kernels.kv_codes import CODES, LEAST_PEAK
from torch import Tensor


def encode(heads: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Codes in ``dtype`` of float32 [..., head_dim], and their float32 [...] scales."""
    scales = heads.abs().amax(-1).clamp(min=LEAST_PEAK) / CODES[dtype]
    scaled = heads / scales[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def decode(codes: Tensor, scales: Tensor) -> Tensor:
    """Float32 [..., head_dim] of codes and their [...] scales."""
    return codes.float() * scales[..., None]
