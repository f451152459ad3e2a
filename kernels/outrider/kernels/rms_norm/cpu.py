"""rms_norm in as few torch operators as there is a way: on small steps each costs more than its arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(
    x: Tensor, weight: Tensor | None, eps: Tensor, *, add: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """See `outrider.kernels.rms_norm`; the arithmetic is in float32."""
    if add is not None:
        x.add_(add)
    wide = x.float()
    norm = torch.linalg.vector_norm(wide, 2, -1, True)
    normed = wide / torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).sqrt_()
    return (normed if weight is None else normed.mul_(weight)).to(dtype or x.dtype)
