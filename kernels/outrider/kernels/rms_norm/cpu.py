"""rms_norm in as few torch operators as there is a way: on small steps each costs more than its arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: Tensor) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis.

    Args:
        x: float32 [..., width].
        weight: float32, broadcasts with ``x``; None where it is folded into what follows.
        eps: float32 scalar tensor.

    Returns:
        float32, of x's shape.
    """
    norm = torch.linalg.vector_norm(x, 2, -1, True)
    normed = x / torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).sqrt_()
    return normed if weight is None else normed.mul_(weight)
