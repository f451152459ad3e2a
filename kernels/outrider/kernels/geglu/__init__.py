"""geglu: the gated activation with gelu, by its approximation with tanh (Hendrycks, Gimpel 2016; Shazeer 2020)."""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.geglu import cpu
from torch import Tensor

__all__ = ["geglu"]


def geglu(gate_up: Tensor) -> Tensor:
    """``gelu(gate) * up``. A row's bits do not depend on the other rows.

    Args:
        gate_up: [n, 2 * width], contiguous, the gate first.

    Returns:
        [n, width], in the dtype of ``gate_up``.
    """
    if takes_triton(gate_up.device):
        from outrider.kernels.geglu import triton

        return triton.geglu(gate_up)
    return cpu.geglu(gate_up)
