"""rope_kv_write as a Triton kernel: each program takes a few heads of a row, either queries, keys or values."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.kv_quant.triton import kind, quantize, raw
from outrider.kernels.launch import Config, launch
from outrider.kernels.pool import KvPool
from torch import Tensor

_TILE = 512
"""Elements of a program's heads."""


@triton.jit
def _normed(x, head_norm, eps, head, in_range, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = in_range[:, None] & (column < HEAD_DIM)[None, :]
    weight = tl.load(head_norm + head[:, None] * HEAD_DIM + column[None, :], inside, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, 1) / HEAD_DIM + tl.load(eps))
    return x * scale[:, None] * weight


@triton.jit
def _rotated(x, key_rope, row, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    rotation = tl.load(key_rope + row * HEAD_DIM + column, column < HEAD_DIM, other=0.0)
    # A head's pairs are neighbours, so that one reshape splits both halves; pairs (i, i + dim / 2) would need a
    # shuffle.
    cos, sin = tl.split(tl.reshape(rotation, [1, BLOCK // 2, 2]))
    even, odd = tl.split(tl.reshape(x, [x.shape[0], BLOCK // 2, 2]))
    pairs = tl.join(even * cos - odd * sin, even * sin + odd * cos)
    return tl.reshape(pairs, [x.shape[0], BLOCK])


@triton.jit
def _store(data, scales, first, head, in_range, x, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, KIND: tl.constexpr):
    """Writes heads from the head ``first`` of the pool on."""
    column = tl.arange(0, x.shape[1])
    inside = in_range[:, None] & (column < HEAD_DIM)[None, :]
    place = data + (first + head[:, None]) * HEAD_DIM + column[None, :]
    if KIND == 0:
        tl.store(place, x, inside)
    else:
        quants, scale = quantize(x, KIND)
        tl.store(place, quants, inside)
        tl.store(scales + first + head, scale, in_range)


@triton.jit(do_not_specialize=["layer", "pool_slots"], do_not_specialize_on_alignment=["slots", "eps"])
def _rope_kv_write(
    qkv,
    key_rope,
    query_rope,
    queries,
    data,
    scales,
    slots,
    head_norm,
    eps,
    balance,
    layer,
    pool_slots,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    NORMED: tl.constexpr,
    BALANCED: tl.constexpr,
    KIND: tl.constexpr,
):
    # One program: a tile of TILE heads of a row, [TILE, BLOCK] elements. Tiles are numbered through queries, keys and
    # values, so that one launch does all three, and a program does one of them: `is_query` and `is_value` are uniform.
    QUERY_TILES: tl.constexpr = (HEADS + TILE - 1) // TILE
    KEY_TILES: tl.constexpr = (KV_HEADS + TILE - 1) // TILE
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    is_query = tile < QUERY_TILES
    is_value = tile >= QUERY_TILES + KEY_TILES
    first = tl.where(is_query, 0, tl.where(is_value, QUERY_TILES + KEY_TILES, QUERY_TILES))
    head = (tile - first) * TILE + tl.arange(0, TILE)
    in_range = head < tl.where(is_query, HEADS, KV_HEADS)
    column = tl.arange(0, BLOCK)
    inside = in_range[:, None] & (column < HEAD_DIM)[None, :]
    in_row = tl.where(is_query, 0, tl.where(is_value, HEADS + KV_HEADS, HEADS)) + head
    # Norm, balance and rotation stay in registers: queries, keys and values are read once and written once.
    start = row * (HEADS + 2 * KV_HEADS)
    place = qkv + (start + in_row[:, None]) * HEAD_DIM + column[None, :]
    x = tl.load(place, inside, other=0.0).to(tl.float32)
    if NORMED and not is_value:
        x = _normed(x, head_norm, eps, in_row, in_range, HEAD_DIM, BLOCK)
    if BALANCED and not is_value:
        x *= tl.load(balance + in_row[:, None] * HEAD_DIM + column[None, :], inside, other=0.0)
    if is_query:
        x = _rotated(x, query_rope, row, HEAD_DIM, BLOCK)
        place = queries + (row * HEADS + head[:, None]) * HEAD_DIM + column[None, :]
        tl.store(place, x, inside)
    else:
        if not is_value:
            x = _rotated(x, key_rope, row, HEAD_DIM, BLOCK)
        slot = tl.load(slots + row)
        tl.device_assert((slot >= -1) & (slot < pool_slots), "a slot is outside the pool")
        slot_first = ((layer.to(tl.int64) * pool_slots + slot) * 2 + is_value) * KV_HEADS
        # Rows that only fill a CUDA graph have no slot.
        in_range = head < tl.where(slot < 0, 0, KV_HEADS)
        _store(data, scales, slot_first, head, in_range, x, KV_HEADS, HEAD_DIM, KIND)


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
    """See `outrider.kernels.rope_kv_write`. The arithmetic is in float32, and results are rounded once.

    Raises:
        ValueError: a shape, a dtype or a layout is not what the op takes, or there is no such layer.
    """
    _check(qkv, key_rope, query_rope, queries, pool, layer, slots)
    if head_norm is not None:
        _check_vectors("head_norm", head_norm, queries.shape[1] + pool.kv_heads, pool.head_dim)
        if eps is None or eps.dim() or eps.dtype != torch.float32:
            raise ValueError("head_norm needs eps, a float32 scalar tensor")
    if balance is not None:
        _check_vectors("balance", balance, queries.shape[1] + pool.kv_heads, pool.head_dim)
    rows, heads, head_dim = queries.shape
    block = triton.next_power_of_2(head_dim)
    tile = max(_TILE // block, 1)
    args: dict[str, Tensor | int] = {
        "qkv": qkv,
        "key_rope": torch.view_as_real(key_rope),
        "query_rope": torch.view_as_real(query_rope),
        "queries": queries,
        "data": raw(pool.data),
        "scales": pool.data if pool.scales is None else pool.scales,
        "slots": slots,
        "head_norm": qkv if head_norm is None else head_norm,
        "eps": qkv if eps is None else eps,
        "balance": qkv if balance is None else balance,
        "layer": layer,
        "pool_slots": pool.data.shape[1],
    }
    constants = {
        "HEADS": heads,
        "KV_HEADS": pool.kv_heads,
        "HEAD_DIM": head_dim,
        "BLOCK": block,
        "TILE": tile,
        "NORMED": head_norm is not None,
        "BALANCED": balance is not None,
        "KIND": kind(pool.dtype),
    }
    grid = (rows, triton.cdiv(heads, tile) + 2 * triton.cdiv(pool.kv_heads, tile))
    launch(_rope_kv_write, grid, args, constants, Config(warps=2))


def _check(
    qkv: Tensor, key_rope: Tensor, query_rope: Tensor, queries: Tensor, pool: KvPool, layer: int, slots: Tensor
) -> None:
    rows, dim = len(qkv), pool.head_dim
    if not 0 <= layer < len(pool.slots):
        raise ValueError(f"layer {layer} is not one of the pool's {len(pool.slots)}")
    if queries.dim() != 3 or queries.shape[::2] != (rows, dim) or not queries.is_contiguous():
        raise ValueError(f"queries are {tuple(queries.shape)}; they must be contiguous [{rows}, heads, {dim}]")
    width = (queries.shape[1] + 2 * pool.kv_heads) * dim
    if qkv.shape != (rows, width) or not qkv.is_contiguous():
        raise ValueError(f"qkv is {tuple(qkv.shape)}; it must be contiguous [rows, {width}]")
    for name, table in (("key_rope", key_rope), ("query_rope", query_rope)):
        if table.shape != (rows, 1, dim // 2) or table.dtype != torch.complex64 or not table.is_contiguous():
            raise ValueError(f"{name} are {table.dtype} {tuple(table.shape)}; complex64 [{rows}, 1, {dim // 2}] it is")
    if slots.shape != (rows,) or slots.dtype != torch.int64 or not slots.is_contiguous():
        raise ValueError(f"slots are {slots.dtype} {tuple(slots.shape)}; they must be contiguous int64 [{rows}]")


def _check_vectors(name: str, vectors: Tensor, heads: int, dim: int) -> None:
    if vectors.shape != (heads, dim) or vectors.dtype != torch.float32 or not vectors.is_contiguous():
        raise ValueError(f"{name} is {vectors.dtype} {tuple(vectors.shape)}; float32 [{heads}, {dim}] it is")
