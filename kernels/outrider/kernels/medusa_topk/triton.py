"""medusa_topk as Triton kernels, which keep no logits: a head's vocabulary is shared out between programs.

Each program multiplies its share block by block, and carries the largest logits and the sum of exponentials along;
then the shares' candidates are merged.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch, product_dtype
from outrider.kernels.medusa_topk.heads import MOST, MedusaHeads, check, features
from torch import Tensor

_MOST_SHARES = 64
"""Of a head's vocabulary: with four heads, some two programs for each multiprocessor of an H100 or H200."""
_ROWS = 16
_Args = dict[str, Tensor | int | float]
_KINDS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit(do_not_specialize=["rows"])
def _residual(hidden, inner, out, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """``hidden + silu(inner)``, head before row."""
    row, head, heads = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    value = tl.load(inner + (row * heads + head) * WIDTH + column, inside, other=0.0).to(tl.float32)
    decay = tl.exp(-tl.abs(value))
    value *= tl.where(value >= 0, 1.0, decay) / (1 + decay)
    value += tl.load(hidden + row * WIDTH + column, inside, other=0.0).to(tl.float32)
    tl.store(out + (head * rows + row) * WIDTH + column, value.to(out.dtype.element_ty), inside)


@triton.jit
def _logits(
    inner, weight, row, token, rows, tokens,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """[tokens of a block, rows], no number as the lowest one, and minus infinity for no token."""
    total = tl.zeros([BLOCK, ROWS], tl.float32)
    line = tl.minimum(token, tokens - 1)
    for start in range(0, WIDTH, STEP):
        place = start + tl.arange(0, STEP)
        used = (row < rows)[:, None]
        if WIDTH % STEP == 0:
            left = tl.load(weight + line[:, None] * WIDTH + place[None, :])
        else:
            left = tl.load(weight + line[:, None] * WIDTH + place[None, :], (place < WIDTH)[None, :], other=0.0)
            used &= (place < WIDTH)[None, :]
        right = tl.load(inner + row[:, None] * WIDTH + place[None, :], used, other=0.0)
        total = tl.dot(left.to(KIND), right.to(KIND).T, total, input_precision="ieee")
    total = tl.minimum(tl.maximum(tl.where(total == total, total, -1e38), -1e38), 1e38)
    return tl.where((token < tokens)[:, None], total, float("-inf"))


@triton.jit
def _largest(values, ids):
    """Along the first axis, the largest value and the lowest id that has it."""
    value = tl.max(values, 0)
    return value, tl.min(tl.where(values == value[None, :], ids, 2**31 - 1), 0)


@triton.jit(do_not_specialize=["rows", "tokens"])
def _scan(
    inner, weight, values, ids, peaks, sums, rows, tokens,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, TOP: tl.constexpr,
    KIND: tl.constexpr,
):  # fmt: skip
    """The ``TOP`` largest logits of one share of a head's vocabulary, the largest, and the sum of exponentials."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    share, shares, head = tl.program_id(1), tl.num_programs(1), tl.program_id(2).to(tl.int64)
    place = tl.arange(0, TOP)[:, None]
    best = tl.full([TOP, ROWS], float("-inf"), tl.float32)
    held = tl.zeros([TOP, ROWS], tl.int32) + tokens
    peak, total = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    blocks = tl.cdiv(tokens, BLOCK)
    per = tl.cdiv(blocks, shares)
    for block in range(share * per, tl.minimum(share * per + per, blocks)):
        token = block * BLOCK + tl.arange(0, BLOCK)
        left = weight + head * tokens * WIDTH
        logits = _logits(
            inner + head * rows * WIDTH, left, row, token.to(tl.int64), rows, tokens, WIDTH, ROWS, BLOCK, STEP, KIND
        )
        higher = tl.maximum(peak, tl.max(logits, 0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(logits - higher[None, :]), 0)
        peak = higher
        old, old_held = best, held
        named = token[:, None] + tl.zeros([BLOCK, ROWS], tl.int32)
        for i in range(TOP):
            ours, our_id = _largest(logits, named)
            theirs, their_id = _largest(old, old_held)
            new = ours > theirs
            value, name = tl.where(new, ours, theirs), tl.where(new, our_id, their_id)
            best = tl.where(place == i, value[None, :], best)
            held = tl.where(place == i, name[None, :], held)
            logits = tl.where(named == name[None, :], float("-inf"), logits)
            old = tl.where(old_held == name[None, :], float("-inf"), old)
    used = row < rows
    at = (row * tl.num_programs(2) + head) * shares + share
    tl.store(values + at[None, :] * TOP + place, best, used[None, :])
    tl.store(ids + at[None, :] * TOP + place, held, used[None, :])
    tl.store(peaks + at, peak, used)
    tl.store(sums + at, total, used)


@triton.jit(do_not_specialize=["k", "tokens"])
def _merge(
    values, ids, peaks, sums, out_ids, out_values, k, tokens, SHARES: tl.constexpr, TOP: tl.constexpr
):  # fmt: skip
    """The largest of all shares' candidates, less the logarithm of all sums."""
    one = tl.program_id(0).to(tl.int64)
    share, candidate = tl.arange(0, SHARES), tl.arange(0, SHARES * TOP)
    peak = tl.load(peaks + one * SHARES + share)
    highest = tl.max(peak, 0)
    sums_of = tl.load(sums + one * SHARES + share) * tl.exp(peak - highest)
    logarithm = highest + tl.log(tl.sum(sums_of, 0))
    value = tl.load(values + one * SHARES * TOP + candidate)[:, None]
    name = tl.load(ids + one * SHARES * TOP + candidate)[:, None]
    for i in range(k):
        best, held = _largest(value, name)
        only = tl.arange(0, 1)
        tl.store(out_ids + one * k + i + only, tl.minimum(held, tokens - 1).to(tl.int64))
        tl.store(out_values + one * k + i + only, best - logarithm)
        value = tl.where(name == held[None, :], float("-inf"), value)


def medusa_topk(hidden: Tensor, heads: MedusaHeads, k: int) -> tuple[Tensor, Tensor]:
    """See `outrider.kernels.medusa_topk`.

    Raises:
        ValueError: a shape, a dtype, a device or ``k`` does not fit.
    """
    check(hidden, heads, k)
    rows, (count, tokens, _) = len(hidden), heads.outputs.shape
    constants, config = _tile(heads.outputs)
    shares = min(_MOST_SHARES, triton.next_power_of_2(triton.cdiv(tokens, constants["BLOCK"])))
    values = hidden.new_empty(rows, count, shares, MOST, dtype=torch.float32)
    ids = torch.empty_like(values, dtype=torch.int32)
    peaks = hidden.new_empty(rows, count, shares, dtype=torch.float32)
    candidates: _Args = {"values": values, "ids": ids, "peaks": peaks, "sums": torch.empty_like(peaks)}
    sides: _Args = {"inner": _inner(hidden, heads), "weight": heads.outputs, "rows": rows, "tokens": tokens}
    launch(_scan, (triton.cdiv(rows, _ROWS), shares, count), sides | candidates, constants, config)
    out_ids = hidden.new_empty(rows, count, k, dtype=torch.int64)
    out_values = hidden.new_empty(rows, count, k, dtype=torch.float32)
    outs: _Args = {"out_ids": out_ids, "out_values": out_values, "k": k, "tokens": tokens}
    launch(_merge, (rows * count,), candidates | outs, {"SHARES": shares, "TOP": MOST}, Config(warps=4))
    return out_ids, out_values


def _inner(hidden: Tensor, heads: MedusaHeads) -> Tensor:
    """[heads, n, hidden]."""
    count, _, width = heads.outputs.shape
    out = hidden.new_empty(count, len(hidden), width)
    args: _Args = {"hidden": hidden, "inner": features(hidden, heads), "out": out, "rows": len(hidden)}
    grid = (len(hidden), count, triton.cdiv(width, 1024))
    launch(_residual, grid, args, {"WIDTH": width, "BLOCK": 1024}, Config(warps=4))
    return out


def _tile(outputs: Tensor) -> tuple[dict[str, Any], Config]:
    wide = outputs.dtype == torch.float32
    constants = {
        "WIDTH": outputs.shape[2],
        "ROWS": _ROWS,
        "BLOCK": 32 if wide else 128,
        "STEP": 32 if wide else 64,
        "TOP": MOST,
        "KIND": _KINDS[product_dtype(outputs.dtype)],
    }
    return constants, Config(warps=8, stages=1) if wide else Config(warps=4, stages=4)
