"""swiglu: the gated activation of the feed-forward block (Shazeer 2020, "GLU variants improve transformer")."""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.swiglu import cpu
from torch import Tensor

__all__ = ["swiglu"]


def swiglu(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up``. A row's bits do not depend on the other rows.

    Args:
        gate_up: [n, 2 * width], contiguous, the gate first.

    Returns:
        [n, width], in the dtype of ``gate_up``.
    """
    if takes_triton(gate_up.device):
        from outrider.kernels.swiglu import triton

        return triton.swiglu(gate_up)
    return cpu.swiglu(gate_up)
