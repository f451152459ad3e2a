"""tree_attention: every row attends to its context and to its own path in the tree.

A plain decode step is a tree of one node, a piece of prompt a tree that is a chain (SpecInfer, Miao et al. 2023, arXiv
2305.09781). Heads are grouped (Ainslie et al. 2023, "GQA"). Scores, softmax and sums are in float32.

A step is planned once, and all layers use the plan. In strict mode a row's bits depend only on the tokens that the row
sees: sums run over fixed ranges of absolute positions, in their order, whatever else is in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.cpu import CpuPlan
from outrider.kernels.tree_attention.pieces import Tiling
from torch import Tensor

__all__ = ["AttentionPlan", "CpuPlan", "Tiling", "check_attention", "plan_attention"]

_MOST_GROUP = 16
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class AttentionPlan(Protocol):
    """One step's attention.

    Attributes:
        scale: 1 / sqrt(head_dim), times log2(e) where the plan computes powers of two.
    """

    scale: float

    @property
    def queries(self) -> Tensor:
        """Written before each layer's attention by `outrider.kernels.rope_kv_write`: rotated, and scaled."""
        ...

    def attend(self, layer: int) -> Tensor:
        """Attention in one layer, over queries, keys and values already written.

        Returns:
            [rows, heads * head_dim], a buffer that the next layer overwrites.
        """
        ...


def plan_attention(
    batch: RaggedBatch,
    pool: KvPool,
    heads: int,
    dtype: torch.dtype,
    *,
    strict: bool,
    tiling: Tiling | None = None,
    windows: Sequence[int | None] = (),
) -> AttentionPlan:
    """The plan of a step.

    Args:
        batch: the step.
        pool: keys and values; float32 on CPU.
        heads: of the queries.
        dtype: of the result.
        strict: whether a row's bits must depend on nothing but the tokens that the row sees.
        tiling: on CPU, in strict mode, the tiling that ensures it (`outrider.kernels.invariance`).
        windows: of each layer, the latest positions that a row sees, its own included, or None for all; empty where
            rows see all in every layer (Beltagy et al. 2020, "Longformer").

    Raises:
        ValueError: there is no kernel for the shape or dtype.
    """
    if takes_triton(pool.data.device):
        from outrider.kernels.tree_attention.triton import TritonPlan

        return TritonPlan(batch, pool, heads, dtype, strict=strict, windows=windows)
    return CpuPlan(batch, pool, heads, dtype, tiling if strict else None, windows)


def check_attention(pool: KvPool, heads: int, dtype: torch.dtype) -> None:
    """Checks that there is a Triton kernel.

    Raises:
        ValueError: there is none; the message says what is allowed.
    """
    if heads % pool.kv_heads:
        raise ValueError(f"{heads} heads do not divide into groups of {pool.kv_heads} key heads")
    if heads // pool.kv_heads > _MOST_GROUP:
        raise ValueError(f"{heads // pool.kv_heads} heads share a key head; at most {_MOST_GROUP} can")
    if dtype not in _DTYPES:
        raise ValueError(f"queries are {dtype}; they must be one of {', '.join(map(str, _DTYPES))}")
    if pool.page_size & (pool.page_size - 1):
        raise ValueError(f"pages hold {pool.page_size} tokens; it must be a power of two")
