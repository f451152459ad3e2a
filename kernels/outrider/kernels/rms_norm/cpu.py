"""rms_norm in as few torch operators as possible: on small steps an operator costs more than its arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(
    x: Tensor, weight: Tensor | None, eps: Tensor, *, add: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """See `outrider.kernels.rms_norm`; the arithmetic is in float32."""
    if add is not None:
        x.add_(add)
    wide = x if x.dtype == torch.float32 else x.float()
    norm = torch.linalg.vector_norm(wide, 2, -1, True)
    normed = wide / torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).sqrt_()
    if weight is not None:
        normed.mul_(weight)
    result_dtype = dtype or x.dtype
    return normed if result_dtype == torch.float32 else normed.to(result_dtype)
