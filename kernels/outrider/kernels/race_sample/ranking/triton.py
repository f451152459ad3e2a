"""The largest logits of a row in Triton: blocks of the vocabulary find theirs, and a program a row merges them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.elementary.triton import exp, log
from outrider.kernels.launch import Config, launch
from outrider.kernels.race_sample.draws import BROKEN_FROM, MOST_TOP
from outrider.kernels.race_sample.logits.triton import BLOCK, CONFIG
from torch import Tensor

_MERGE = Config(warps=4, fused=False)

_BROKEN_FROM = tl.constexpr(BROKEN_FROM)
_NO_ENTRY = tl.constexpr(2**31 - 1)
_LEAST_TOTAL = tl.constexpr(1e-30)


@triton.jit(do_not_specialize=["stride", "vocabulary", "blocks", "count"])
def _tops(logits, peaks, totals, bests, ids, stride, vocabulary, blocks, count, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    entries = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + entries, entries < vocabulary, other=float("-inf")).to(tl.float32)
    sound = x < _BROKEN_FROM
    x = tl.where(sound, x, float("-inf"))
    peak = tl.max(x)
    total = tl.sum(tl.where(x > float("-inf"), exp(x - tl.where(peak > float("-inf"), peak, 0.0)), 0.0))
    tl.store(peaks + row * blocks + block, tl.where(tl.min(sound.to(tl.int32)) == 0, float("inf"), peak))
    tl.store(totals + row * blocks + block, total)
    first = (row * blocks + block) * count
    for place in range(count):
        best = tl.max(x)
        entry = tl.min(tl.where(x == best, entries, _NO_ENTRY))
        tl.store(bests + first + place, best)
        tl.store(ids + first + place, entry)
        x = tl.where(entries == entry, float("-inf"), x)


@triton.jit(do_not_specialize=["stride", "blocks", "count"])
def _merge(
    logits,
    drawn,
    peaks,
    totals,
    bests,
    ids,
    tokens,
    logprobs,
    drawn_logprobs,
    stride,
    blocks,
    count,
    BLOCKS: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCKS)
    block_peaks = tl.load(peaks + row * blocks + places, places < blocks, other=float("-inf"))
    peak = tl.max(block_peaks)
    whole = (peak > float("-inf")) & (peak < float("inf"))
    peak = tl.where(whole, peak, 0.0)
    weights = exp(tl.where(whole, block_peaks, 0.0) - peak)
    total = tl.sum(tl.load(totals + row * blocks + places, places < blocks, other=0.0) * weights)
    norm = peak + log(tl.maximum(total, _LEAST_TOTAL))
    slots = tl.arange(0, CANDIDATES)
    filled = slots < tl.where(whole, blocks * count, 0)
    value = tl.load(bests + row * blocks * count + slots, filled, other=float("-inf"))
    entry = tl.load(ids + row * blocks * count + slots, filled, other=_NO_ENTRY)
    for place in range(count):
        best = tl.max(value)
        exists = best > float("-inf")
        token = tl.min(tl.where(value == best, entry, _NO_ENTRY))
        tl.store(tokens + row * count + place, tl.where(exists, token, -1))
        tl.store(logprobs + row * count + place, tl.where(exists, best - norm, float("-inf")))
        value = tl.where(entry == token, float("-inf"), value)
    token = tl.load(drawn + row)
    logit = tl.load(logits + row * stride + tl.maximum(token, 0)).to(tl.float32)
    tl.store(drawn_logprobs + row, tl.where(token >= 0, logit - norm, float("-inf")))


def rank_top(logits: Tensor, k: int, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest logits of each row, best first and the lowest id first on a tie, as log-probabilities.

    Args:
        logits: float32, bfloat16 or float16 [n, V], as the model gave them.
        k: tokens a row, 0 to `MOST_TOP`; one compilation serves every k.
        drawn: int32 [n], the drawn tokens; -1 for none.

    Returns:
        Tokens int32 [n, k], -1 for none; their log-probabilities, float32 [n, k]; log-probabilities of ``drawn``,
        float32 [n].
    """
    (rows, vocabulary), device = logits.shape, logits.device
    blocks = triton.cdiv(vocabulary, BLOCK)
    partials = {
        "peaks": torch.empty(rows, blocks, device=device),
        "totals": torch.empty(rows, blocks, device=device),
        "bests": torch.empty(rows, blocks, k, device=device),
        "ids": torch.empty(rows, blocks, k, dtype=torch.int32, device=device),
    }
    read = {"logits": logits, "stride": logits.stride(0), "blocks": blocks, "count": k}
    launch(_tops, (rows, blocks), {**read, **partials, "vocabulary": vocabulary}, {"BLOCK": BLOCK}, CONFIG)
    tokens = torch.empty(rows, k, dtype=torch.int32, device=device)
    logprobs, drawn_logprobs = torch.empty(rows, k, device=device), torch.empty(rows, device=device)
    results = {"drawn": drawn, "tokens": tokens, "logprobs": logprobs, "drawn_logprobs": drawn_logprobs}
    padded = {"BLOCKS": triton.next_power_of_2(blocks), "CANDIDATES": triton.next_power_of_2(blocks * MOST_TOP)}
    launch(_merge, (rows,), {**read, **partials, **results}, padded, _MERGE)
    return tokens, logprobs, drawn_logprobs
