"""rope_kv_write on CPU: one complex product for the queries, one for the keys, one write."""

from __future__ import annotations

import torch
from outrider.kernels.pool import KvPool
from torch import Tensor


def rope_kv_write(
    qkv: Tensor, turns: Tensor, query_turns: Tensor, queries: Tensor, pool: KvPool, layer: int, slots: Tensor
) -> None:
    """Writes rotated queries to ``queries``, and rotated keys and values to the pool.

    Args:
        qkv: float32 [rows, (heads + 2 * kv_heads) * head_dim], contiguous; changed in place.
        turns: complex64 [rows, 1, head_dim / 2], the keys' unit numbers.
        query_turns: complex64 [rows, 1, head_dim / 2], those of the queries, which may carry the attention's scale.
        queries: complex64 [rows, kv_heads, heads / kv_heads, head_dim / 2] to write to.
        pool: float32 pages.
        layer: index of the layer.
        slots: int64 [rows].
    """
    rows, kv_heads, group, pairs = queries.shape
    heads = kv_heads * group
    pairwise = qkv.view(torch.complex64).view(rows, -1, pairs)
    torch.mul(pairwise[:, :heads].view(rows, kv_heads, group, pairs), query_turns.unsqueeze(1), out=queries)
    pairwise[:, heads : heads + kv_heads].mul_(turns)
    pool.slots[layer].index_copy_(0, slots, qkv[:, heads * pairs * 2 :])
