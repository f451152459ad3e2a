"""The largest of a row in Triton: blocks of the vocabulary find theirs, and a program a row merges them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from outrider.kernels.elementary.triton import exp, log
from outrider.kernels.launch import Config, launch
from outrider.kernels.philox.triton import log_exponential, words
from outrider.kernels.race_sample.draws import GREEDY_BELOW
from outrider.kernels.race_sample.logits.triton import CONFIG, divisor, opened
from torch import Tensor

Args = Mapping[str, Tensor | int | float]

_MERGE = Config(warps=4, fused=False)

_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_NOBODY = tl.constexpr(2**31 - 1)
_LEAST_TOTAL = tl.constexpr(1e-30)


@triton.jit(do_not_specialize=["stride", "vocabulary", "blocks", "masks", "count"])
def _tops(
    values,
    seeds,
    positions,
    temperatures,
    allowed,
    least,
    peaks,
    totals,
    bests,
    ids,
    stride,
    vocabulary,
    blocks,
    masks,
    count,
    RACE: tl.constexpr,
    SCALED: tl.constexpr,
    MASKED: tl.constexpr,
    TRUNCATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    entries = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + row * stride + entries, entries < vocabulary, other=float("-inf")).to(tl.float32)
    x = opened(value, row, block, vocabulary, allowed, least, masks, SCALED, MASKED, TRUNCATED, BLOCK)
    broken = tl.max(x) == float("inf")
    x = tl.where(x < float("inf"), x, float("-inf"))
    if RACE:
        temperature = tl.load(temperatures + row)
        if not SCALED:
            x = tl.math.div_rn(x, divisor(temperature))
        if temperature >= _GREEDY_BELOW:
            drawn = words(tl.load(seeds + row), tl.load(positions + row), block * BLOCK, BLOCK)
            x -= log_exponential(drawn)
    peak = tl.max(x)
    total = tl.sum(tl.where(x > float("-inf"), exp(x - tl.where(peak > float("-inf"), peak, 0.0)), 0.0))
    tl.store(peaks + row * blocks + block, tl.where(broken, float("inf"), peak))
    tl.store(totals + row * blocks + block, total)
    first = (row * blocks + block) * count
    for place in range(count):
        best = tl.max(x)
        entry = tl.min(tl.where(x == best, entries, _NOBODY))
        tl.store(bests + first + place, best)
        tl.store(ids + first + place, entry)
        x = tl.where(entries == entry, float("-inf"), x)


@triton.jit(do_not_specialize=["stride", "blocks", "count"])
def _merge(
    values,
    drawn,
    peaks,
    totals,
    bests,
    ids,
    tokens,
    shares,
    logprobs,
    stride,
    blocks,
    count,
    RACE: tl.constexpr,
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
    held = slots < tl.where(whole, blocks * count, 0)
    value = tl.load(bests + row * blocks * count + slots, held, other=float("-inf"))
    entry = tl.load(ids + row * blocks * count + slots, held, other=_NOBODY)
    for place in range(count):
        best = tl.max(value)
        found = best > float("-inf")
        token = tl.min(tl.where(value == best, entry, _NOBODY))
        share = tl.where(found, best, norm) - norm
        if RACE:
            share = exp(share)
        share = tl.where(found, share, 0.0 if RACE else float("-inf"))
        tl.store(tokens + row * count + place, tl.where(found, token, -1))
        tl.store(shares + row * count + place, share)
        value = tl.where(entry == token, float("-inf"), value)
    if not RACE:
        token = tl.load(drawn + row)
        logit = tl.load(values + row * stride + tl.maximum(token, 0)).to(tl.float32)
        tl.store(logprobs + row, tl.where(token >= 0, logit - norm, float("-inf")))


def ranked(args: Args, constants: Mapping[str, Any], k: int, most: int, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of each row, best first, and their shares.

    Args:
        args: of `_tops`, but for what it writes.
        constants: of `_tops`; with ``RACE`` scores are ranked and shares told, without it logits and logarithms.
        k: tokens a row, up to ``most``, for which kernels are compiled.
        most: see above.
        drawn: int32 [n], tokens whose logarithms are also told where logits are ranked.

    Returns:
        Tokens int32 [n, k], -1 for none; shares or their logarithms, float32 [n, k]; logarithms of ``drawn``,
        float32 [n].
    """
    rows, blocks, device = len(drawn), int(args["blocks"]), drawn.device
    found = {
        "peaks": torch.empty(rows, blocks, device=device),
        "totals": torch.empty(rows, blocks, device=device),
        "bests": torch.empty(rows, blocks, k, device=device),
        "ids": torch.empty(rows, blocks, k, dtype=torch.int32, device=device),
    }
    launch(_tops, (rows, blocks), {**args, **found, "count": k}, constants, CONFIG)
    tokens = torch.empty(rows, k, dtype=torch.int32, device=device)
    shares, logarithms = torch.empty(rows, k, device=device), torch.empty(rows, device=device)
    told = {"drawn": drawn, "tokens": tokens, "shares": shares, "logprobs": logarithms}
    merged = {name: args[name] for name in ("values", "stride", "blocks")}
    padded = {"BLOCKS": triton.next_power_of_2(blocks), "CANDIDATES": triton.next_power_of_2(blocks * most)}
    launch(_merge, (rows,), {**merged, **found, **told, "count": k}, {"RACE": constants["RACE"], **padded}, _MERGE)
    return tokens, shares, logarithms
