"""rope_kv_write: rotates queries and keys by their positions and writes keys and values to their pages.

Rotary embeddings (Su et al. 2021, "RoFormer"), over interleaved pairs: elements 2i and 2i + 1 of a head are one complex
number, rotated by the angle ``position * frequency[i]``. Checkpoints that pair i with i + head_dim / 2 have the rows of
their query and key weights reordered when they are loaded, which changes no product of a query and a key.

The op also norms each head before the rotation where the model does (Dehghani et al. 2023, "Scaling vision transformers
to 22 billion parameters"; Qwen3).
"""

from __future__ import annotations

from outrider.kernels.backend import takes_triton
from outrider.kernels.pool import KvPool
from outrider.kernels.rope_kv_write import cpu
from torch import Tensor

__all__ = ["rope_kv_write"]


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
    """Writes rotated queries to ``queries``, and rotated keys and values to the pool.

    The result for a row depends on that row alone.

    Args:
        qkv: [rows, (heads + 2 * kv_heads) * head_dim], contiguous, float32 or 16-bit. The op may change it.
        key_rope: complex64 [rows, 1, head_dim / 2], the keys' unit numbers.
        query_rope: complex64 [rows, 1, head_dim / 2], those of the queries, which may carry the attention's scale.
        queries: the output. On CPU complex64 [rows, kv_heads, heads / kv_heads, head_dim / 2]; for a Triton kernel
            [rows, heads, head_dim], contiguous, float32 or 16-bit.
        pool: pages; on CPU float32, for a Triton kernel of any dtype.
        layer: index of the layer.
        slots: int64 [rows]; a Triton kernel writes no key and no value of a row whose slot is -1.
        head_norm: float32 [heads + kv_heads, head_dim], weights of the heads' norms; None norms nothing.
        eps: float32 scalar tensor, of the norms.
        balance: float32 [heads + kv_heads, head_dim], factors of queries and keys before the rotation; None is 1.
    """
    if takes_triton(qkv.device):
        from outrider.kernels.rope_kv_write import triton

        write = triton.rope_kv_write
    else:
        write = cpu.rope_kv_write
    write(qkv, key_rope, query_rope, queries, pool, layer, slots, head_norm=head_norm, eps=eps, balance=balance)
