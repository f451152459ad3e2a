"""The definition of linear."""

from __future__ import annotations

from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias`` of [n, in], [out, in] and [out] in float32: [n, out]."""
    matmul = x.float() @ weight.float().T
    return matmul if bias is None else matmul + bias.float()
