"""experts: gated blocks of which a router picks a few for each row (Shazeer et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from outrider.kernels.experts.loop import LoopedExperts
from outrider.kernels.linear import Linear
from outrider.kernels.linear.gpu import GpuLinear
from torch import Tensor

__all__ = ["Experts", "pack"]


class Experts(Protocol):
    """The experts of a layer. With matmuls that are strict, a row's bits do not depend on the other rows.

    Attributes:
        dtype: of the rows.
        on_device: whether the host reads nothing of what rows chose, as a CUDA graph demands.
    """

    dtype: torch.dtype
    on_device: bool

    def __call__(self, x: Tensor, scores: Tensor) -> Tensor:
        """The sum of the results of each row's likeliest experts, added in the order of the experts.

        Args:
            x: [n, hidden], contiguous, in ``dtype``.
            scores: float32 [n, count], contiguous; their softmax is each expert's share.

        Returns:
            float32 [n, hidden].
        """
        ...


def pack(projections: Sequence[tuple[Linear, Linear]], active: int, *, normed: bool) -> Experts:
    """The quickest form of experts: five launches, or a loop over them.

    Triton's kernels take weights in 16 or 32 bits without a bias. Quantized weights, and devices without Triton, have
    the loop, which the host runs, so that no CUDA graph captures it.

    Args:
        projections: of each expert, gate and up joined, [2 * width, hidden], and down, [hidden, width].
        active: experts of a row; of equally likely ones the first.
        normed: whether a row's shares are divided by their sum.
    """
    pairs = [
        (gate_up.plain, down.plain)
        for gate_up, down in projections
        if isinstance(gate_up, GpuLinear) and isinstance(down, GpuLinear)
    ]
    gate_ups = [gate_up for gate_up, _ in pairs if gate_up is not None]
    downs = [down for _, down in pairs if down is not None]
    if len(gate_ups) < len(projections) or len(downs) < len(projections):
        return LoopedExperts(projections, active, normed=normed)
    from outrider.kernels.experts.triton import StackedExperts

    return StackedExperts(torch.stack(gate_ups), torch.stack(downs), active, normed=normed)
