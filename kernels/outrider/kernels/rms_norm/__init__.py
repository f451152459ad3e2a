"""rms_norm: scaling by the root mean square (Zhang, Sennrich 2019, "Root mean square layer normalization")."""

from __future__ import annotations

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.rms_norm import cpu
from torch import Tensor

__all__ = ["rms_norm"]


def rms_norm(
    x: Tensor, weight: Tensor | None, eps: Tensor, *, add: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis. A row's bits do not depend on the other rows.

    Args:
        x: [..., width], float32 or 16-bit; a Triton kernel takes up to 16384 columns.
        weight: [width], or [heads, width] for an x of [..., heads, width]; None where it is folded into what follows.
        eps: float32 scalar tensor.
        add: of x's shape; where it is given, it is first added to ``x``, in place and in x's dtype.
        dtype: of the result; None is x's.

    Returns:
        ``dtype``, of x's shape.
    """
    if takes_triton(x.device):
        from outrider.kernels.rms_norm import triton

        return triton.rms_norm(x, weight, eps, add=add, dtype=dtype)
    return cpu.rms_norm(x, weight, eps, add=add, dtype=dtype)
