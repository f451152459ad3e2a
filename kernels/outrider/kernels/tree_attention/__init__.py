"""tree_attention: every row attends to its context and to its own path, whatever its sequence brings.

A plain decode step is a tree of one node, a piece of prompt a tree that is a chain (SpecInfer, Miao et al. 2023, arXiv
2305.09781). Heads are grouped (Ainslie et al. 2023, "GQA"). Scores, softmax and sums are in float32.

A step is planned once, and all layers attend by the plan. In strict mode a row's bits depend only on what it sees: sums
run over fixed ranges of absolute positions, in their order, however the rows came to the step.
"""

from __future__ import annotations

from typing import Protocol

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.cpu import CpuPlan
from outrider.kernels.tree_attention.pieces import Tiling
from torch import Tensor

__all__ = ["AttentionPlan", "CpuPlan", "Tiling", "plan_attention"]


class AttentionPlan(Protocol):
    """One step's attention.

    Attributes:
        queries: to be written before each layer's attention by `outrider.kernels.rope_kv_write`: rotated, and scaled
            by ``scale``.
        scale: 1 / sqrt(head_dim), and what makes natural logarithms binary where it computes in those.
    """

    queries: Tensor
    scale: float

    def attend(self, layer: int) -> Tensor:
        """Attention in one layer, over queries, keys and values already written.

        Returns:
            [rows, heads * head_dim], a buffer that the next layer overwrites.
        """
        ...


def plan_attention(
    batch: RaggedBatch, pool: KvPool, heads: int, dtype: torch.dtype, *, strict: bool, tiling: Tiling | None = None
) -> AttentionPlan:
    """The plan of a step.

    Args:
        batch: the step.
        pool: keys and values; float32 on CPU.
        heads: of the queries.
        dtype: of the result.
        strict: whether a row's bits may depend on nothing but what it sees.
        tiling: on CPU, in strict mode, what was found to keep them so.

    Raises:
        ValueError: there is no kernel for the shape or dtype.
    """
    if takes_triton(pool.data.device):
        from outrider.kernels.tree_attention.triton import TritonPlan

        return TritonPlan(batch, pool, heads, dtype, strict=strict)
    return CpuPlan(batch, pool, heads, dtype, tiling if strict else None)
