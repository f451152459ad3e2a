"""Penalties, grammar mask and temperature in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from outrider.kernels.race_sample.draws import BROKEN_FROM, GREEDY_BELOW, Draws, Penalties
from torch import Tensor

BLOCK = 4096
"""Entries of the vocabulary per program."""

CONFIG = Config(warps=8, fused=False)

_CHUNK = 256

_GREEDY_BELOW, _BROKEN_FROM = tl.constexpr(GREEDY_BELOW), tl.constexpr(BROKEN_FROM)


@triton.jit
def divisor(temperature):
    """The divisor of a row's logits; 1 where it is greedy."""
    return tl.where(temperature >= _GREEDY_BELOW, temperature, 1.0)


@triton.jit
def _allows(words, entries, inside):
    """Whether each entry's bit is set in a row's packed mask."""
    return ((tl.load(words + (entries >> 5), inside, other=0) >> (entries & 31)) & 1) != 0


@triton.jit
def masked_values(
    value,
    row,
    block,
    vocabulary,
    allowed,
    least,
    masks,
    SCALED: tl.constexpr,
    MASKED: tl.constexpr,
    TRUNCATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A block's values, with minus infinity where mask or truncation forbids an entry, and infinity where broken."""
    sound = value < (float("inf") if SCALED else _BROKEN_FROM)
    if MASKED:
        forbidden = ~_block_allows(allowed, row, block, vocabulary, masks, BLOCK)
        value = tl.where(forbidden & sound, float("-inf"), value)
    if TRUNCATED:
        value = tl.where(value < tl.load(least + row), float("-inf"), value)
    return tl.where(sound, value, float("inf"))


@triton.jit
def _block_allows(allowed, row, block, vocabulary, masks, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    return _allows(allowed + row * masks + block * (BLOCK // 32), places, block * BLOCK + places < vocabulary)


@triton.jit
def _stored(logit, allowed_here, temperature):
    """The value stored for a logit: NaN marks a row as broken."""
    sound = logit < _BROKEN_FROM
    scaled = tl.math.div_rn(tl.where(sound, logit, 0.0), divisor(temperature))
    return tl.where(sound, tl.where(allowed_here, scaled, float("-inf")), float("nan"))


@triton.jit(do_not_specialize=["stride", "vocabulary", "words"])
def _scale(logits, temperatures, allowed, out, stride, vocabulary, words, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    entries = block * BLOCK + tl.arange(0, BLOCK)
    inside = entries < vocabulary
    logit = tl.load(logits + row * stride + entries, inside, other=0.0).to(tl.float32)
    allowed_here = inside
    if MASKED:
        allowed_here = _block_allows(allowed, row, block, vocabulary, words, BLOCK)
    tl.store(out + row * vocabulary + entries, _stored(logit, allowed_here, tl.load(temperatures + row)), inside)


@triton.jit(do_not_specialize=["stride", "vocabulary", "words"])
def _penalise(
    logits,
    temperatures,
    allowed,
    out,
    offsets,
    tokens,
    factors,
    biases,
    stride,
    vocabulary,
    words,
    MASKED: tl.constexpr,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    end = tl.load(offsets + row + 1)
    # One program a row, over the row's own list: penalties name few tokens, and only those are computed again,
    # from the plain logit, over what `_scale` wrote.
    for start in range(tl.load(offsets + row), end, CHUNK):
        places = start + tl.arange(0, CHUNK)
        inside = places < end
        token = tl.load(tokens + places, inside, other=0)
        tl.device_assert((token >= 0) & (token < vocabulary), "a penalty's token is not in the vocabulary")
        logit = tl.load(logits + row * stride + token, inside, other=0.0).to(tl.float32)
        factor = tl.load(factors + places, inside, other=1.0)
        changed = tl.where(logit > 0, tl.math.div_rn(logit, factor), logit * factor)
        changed = changed + tl.load(biases + places, inside, other=0.0)
        changed = tl.where(logit < _BROKEN_FROM, changed, float("nan"))
        allowed_here = inside
        if MASKED:
            allowed_here = _allows(allowed + row * words, token, inside)
        tl.store(out + row * vocabulary + token, _stored(changed, allowed_here, temperature), inside)


def scaled_logits(logits: Tensor, draws: Draws) -> Tensor:
    """Logits after penalties, mask and temperature: float32 [n, V]; NaN somewhere in a broken row."""
    rows, vocabulary = logits.shape
    out = torch.empty(rows, vocabulary, device=logits.device)
    args = {
        "logits": logits,
        "temperatures": draws.temperatures,
        "allowed": logits if draws.allowed is None else draws.allowed,
        "out": out,
        "stride": logits.stride(0),
        "vocabulary": vocabulary,
        "words": triton.cdiv(vocabulary, 32),
    }
    masked = draws.allowed is not None
    launch(_scale, (rows, triton.cdiv(vocabulary, BLOCK)), args, {"MASKED": masked, "BLOCK": BLOCK}, CONFIG)
    if draws.penalties is not None:
        launch(_penalise, (rows,), args | _lists(draws.penalties), {"MASKED": masked, "CHUNK": _CHUNK}, CONFIG)
    return out


def _lists(penalties: Penalties) -> dict[str, Tensor | int | float]:
    return {
        "offsets": penalties.offsets,
        "tokens": penalties.tokens,
        "factors": penalties.factors,
        "biases": penalties.biases,
    }
