"""tree_attention in plain torch, piece by piece."""

from __future__ import annotations

from outrider.kernels.tree_attention.plan import AttentionPlan
from torch import Tensor


def tree_attention(plan: AttentionPlan, layer: int) -> Tensor:
    """Attention of the step's rows in one layer, over keys and values already written.

    Args:
        plan: of the step, its queries written.
        layer: index of the layer.

    Returns:
        [rows, heads * head_dim], a buffer that the next layer overwrites.
    """
    for piece in plan.passes:
        piece.run(layer)
    return plan.out
