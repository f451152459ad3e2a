"""rope_kv_write on CPU: one complex product for the queries, one for the keys, one write."""

from __future__ import annotations

import torch
from outrider.kernels.pool import KvPool
from outrider.kernels.rms_norm.cpu import rms_norm
from torch import Tensor


def rope_kv_write(
    qkv: Tensor,
    key_rope: Tensor,
    query_rope: Tensor,
    queries: Tensor,
    pool: KvPool,
    layer: int,
    slots: Tensor,
    *,
    head_norm: Tensor | None = None,
    eps: Tensor | None = None,
    balance: Tensor | None = None,
) -> None:
    """See `outrider.kernels.rope_kv_write`."""
    qkv = qkv.float()
    rows, kv_heads, group, pairs = queries.shape
    heads = kv_heads * group
    rotated = qkv.view(rows, -1, 2 * pairs)[:, : heads + kv_heads]
    if head_norm is not None and eps is not None:
        rotated.copy_(rms_norm(rotated, head_norm, eps))
    if balance is not None:
        rotated.mul_(balance)
    pairwise = qkv.view(torch.complex64).view(rows, -1, pairs)
    torch.mul(pairwise[:, :heads].view(rows, kv_heads, group, pairs), query_rope.unsqueeze(1), out=queries)
    pairwise[:, heads : heads + kv_heads].mul_(key_rope)
    pool.slots[layer].index_copy_(0, slots, qkv[:, heads * pairs * 2 :])
