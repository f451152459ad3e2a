"""The race in Triton: blocks of the vocabulary find their winners, and a program a row picks among them.

A block first bounds every score from above by integer arithmetic on the random words, and computes the logarithms only
of entries that may still win: almost always one or two.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from outrider.kernels.philox.triton import log_exponential, word, words
from outrider.kernels.race_sample.draws import GREEDY_BELOW, Draws
from outrider.kernels.race_sample.logits.triton import BLOCK, CONFIG, masked_values, scaled_logits
from outrider.kernels.race_sample.truncation.triton import least_kept
from torch import Tensor

_FINISH = Config(warps=1, fused=False)

_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_NO_ENTRY = tl.constexpr(2**31 - 1)
LESS, MORE = tl.constexpr(1 - 1e-6), tl.constexpr(1 + 1e-6)
_LN2_PER_BIT, _SLACK = tl.constexpr(-math.log(2) * 2.0**-23), tl.constexpr(math.log(2) * (127 + 32) + 1e-3)


@triton.jit
def upper_bound(logit, least_factor, most_factor, drawn):
    """At least ``logit / T - log E`` of each word, where the quotient lies between the products with the factors.

    ``E >= u``, and ``log2 u >= bits / 2**23 - 127`` for the bits of u as an integer, since ``log2(1 + m) >= m``.
    """
    bits = drawn.to(tl.float32).to(tl.int32, bitcast=True).to(tl.float32)
    return tl.maximum(logit * least_factor, logit * most_factor) + tl.fma(bits, _LN2_PER_BIT, _SLACK)


@triton.jit
def _score(logits, entry, seed, position, by, SCALED: tl.constexpr):
    x = tl.load(logits + entry).to(tl.float32)
    if not SCALED:
        x = tl.math.div_rn(x, by)
    return x - log_exponential(word(seed, position, entry))


@triton.jit
def _winner(bound, highest, entries, logits, seed, position, by, SCALED: tl.constexpr):
    """The best score of a block and the lowest entry that has it: scores entries until no bound reaches the best.

    Scores none where a bound is infinite: the row is broken.
    """
    best = tl.full((), float("-inf"), tl.float32)
    best_entry = tl.full((), _NO_ENTRY, tl.int32)
    # Logarithms are dear and bounds are cheap: the entry of the highest bound is scored, until no bound reaches the
    # best score. The bound is close, so that this takes one or two rounds.
    while (highest >= best) & (highest > float("-inf")) & (highest < float("inf")):
        entry = tl.min(tl.where(bound == highest, entries, _NO_ENTRY))
        score = _score(logits, entry, seed, position, by, SCALED)
        better = (score > best) | ((score == best) & (entry < best_entry))
        best = tl.where(better, score, best)
        best_entry = tl.where(better, entry, best_entry)
        bound = tl.where(entries == entry, float("-inf"), bound)
        highest = tl.max(bound)
    return best, best_entry


@triton.jit(do_not_specialize=["stride", "vocabulary", "blocks", "masks"])
def _race(
    values,
    seeds,
    positions,
    temperatures,
    allowed,
    least,
    scores,
    winners,
    stride,
    vocabulary,
    blocks,
    masks,
    SCALED: tl.constexpr,
    MASKED: tl.constexpr,
    TRUNCATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # One program: BLOCK entries of a row's vocabulary. A single program a row would leave most of the GPU idle for few
    # rows, hence `_finish` as a second launch.
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    entries = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + row * stride + entries, entries < vocabulary, other=float("-inf")).to(tl.float32)
    value = masked_values(value, row, block, vocabulary, allowed, least, masks, SCALED, MASKED, TRUNCATED, BLOCK)
    temperature = tl.load(temperatures + row)
    if temperature >= _GREEDY_BELOW:
        seed, position = tl.load(seeds + row), tl.load(positions + row)
        factor = 1.0 if SCALED else 1.0 / temperature
        bound = upper_bound(value, factor * LESS, factor * MORE, words(seed, position, block * BLOCK, BLOCK))
        highest = tl.max(bound)
        best, entry = _winner(bound, highest, entries, values + row * stride, seed, position, temperature, SCALED)
        best = tl.where(highest < float("inf"), best, highest)
    else:
        best = tl.max(value)
        entry = tl.min(tl.where(value == best, entries, _NO_ENTRY))
    tl.store(scores + row * blocks + block, best)
    tl.store(winners + row * blocks + block, entry)


@triton.jit(do_not_specialize=["blocks"])
def _finish(scores, winners, tokens, blocks, BLOCKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCKS)
    score = tl.load(scores + row * blocks + places, places < blocks, other=float("-inf"))
    winner = tl.load(winners + row * blocks + places, places < blocks, other=_NO_ENTRY)
    best = tl.max(score)
    drawn = (best > float("-inf")) & (best < float("inf"))
    tl.store(tokens + row, tl.where(drawn, tl.min(tl.where(score == best, winner, _NO_ENTRY)), -1))


def draw(logits: Tensor, draws: Draws) -> Tensor:
    """See `outrider.kernels.race_sample.draw`."""
    draws.check(logits)
    args, constants = _prepared(logits, draws)
    rows, blocks = len(logits), int(args["blocks"])
    winners_by_block: dict[str, Tensor | int | float] = {
        "scores": torch.empty(rows, blocks, device=logits.device),
        "winners": torch.empty(rows, blocks, dtype=torch.int32, device=logits.device),
    }
    launch(_race, (rows, blocks), {**args, **winners_by_block}, constants, CONFIG)
    tokens = torch.empty(rows, dtype=torch.int32, device=logits.device)
    padded = {"BLOCKS": triton.next_power_of_2(blocks)}
    launch(_finish, (rows,), {**winners_by_block, "tokens": tokens, "blocks": blocks}, padded, _FINISH)
    return tokens


def _prepared(logits: Tensor, draws: Draws) -> tuple[dict[str, Tensor | int], dict[str, bool | int]]:
    """Arguments and constants of a race over ``logits``; copies them only for penalties and truncation."""
    vocabulary = logits.shape[1]
    copied = draws.penalties is not None or draws.truncates
    values = scaled_logits(logits, draws) if copied else logits
    args: dict[str, Tensor | int] = {
        "values": values,
        "seeds": draws.seeds,
        "positions": draws.positions,
        "temperatures": draws.temperatures,
        "allowed": draws.seeds if draws.allowed is None else draws.allowed,
        "least": least_kept(values, draws) if draws.truncates else draws.temperatures,
        "stride": values.stride(0),
        "vocabulary": vocabulary,
        "blocks": triton.cdiv(vocabulary, BLOCK),
        "masks": triton.cdiv(vocabulary, 32),
    }
    masked = draws.allowed is not None and not copied
    return args, {"SCALED": copied, "MASKED": masked, "TRUNCATED": draws.truncates, "BLOCK": BLOCK}
