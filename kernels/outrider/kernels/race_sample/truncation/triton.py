"""Truncation in Triton, without sorting: the least logit that a row keeps is found digit by digit.

Floats are read as unsigned integers in the same order. Each of eight levels finds the next four bits: it counts (top-k)
or weighs (top-p) the logits with each digit, over all blocks of a row. Sums of integers are the same in any order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.elementary.triton import log, mass
from outrider.kernels.launch import launch
from outrider.kernels.race_sample.draws import GREEDY_BELOW, Draws
from outrider.kernels.race_sample.logits.triton import BLOCK, CONFIG
from outrider.kernels.race_sample.truncation.reference import SHARE_BITS
from torch import Tensor

_LEVELS, _DIGITS = 8, 16

_LEVELS_TL, _DIGITS_TL = tl.constexpr(_LEVELS), tl.constexpr(_DIGITS)
_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_SHARE_BITS, _SHARE_UNIT = tl.constexpr(SHARE_BITS), tl.constexpr(2.0**SHARE_BITS)
_SHARE_MASK = tl.constexpr((1 << SHARE_BITS) - 1)
_LEAST_SHARE = tl.constexpr(2.0**-100)


@triton.jit(do_not_specialize=["vocabulary", "blocks"])
def _peak(scaled, peaks, vocabulary, blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    tl.store(peaks + row * blocks + block, tl.max(_finite(scaled, row, block, vocabulary, BLOCK)))


@triton.jit
def _finite(scaled, row, block, vocabulary, BLOCK: tl.constexpr):
    entries = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(scaled + row * vocabulary + entries, entries < vocabulary, other=float("-inf"))
    return tl.where(x == x, x, float("-inf"))


@triton.jit
def _row_peak(peaks, row, blocks, BLOCKS: tl.constexpr):
    places = tl.arange(0, BLOCKS)
    peak = tl.max(tl.load(peaks + row * blocks + places, places < blocks, other=float("-inf")))
    return tl.where(peak > float("-inf"), peak, 0.0)


@triton.jit
def _order(x):
    # Flips all bits of negative floats and the sign of the others: then unsigned order is the floats' order.
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def _unorder(order):
    signed = order.to(tl.uint32).to(tl.int32, bitcast=True)
    return (signed ^ (~(signed >> 31) | -2147483648)).to(tl.float32, bitcast=True)


@triton.jit
def _wanted(counts, shares, row, vocabulary, temperature, SHARE: tl.constexpr):
    """How much to keep, in entries or units of 2**-24 of the mass, and whether that drops anything."""
    hot = temperature >= _GREEDY_BELOW
    if SHARE:
        top_p = tl.load(shares + row)
        units = (tl.minimum(tl.maximum(top_p, 0.0), 1.0) * _SHARE_UNIT).to(tl.int64)
        wanted = tl.maximum(units, 1)
        drops = hot & (top_p < 1.0)
    else:
        wanted = tl.load(counts + row).to(tl.int64)
        drops = hot & (wanted > 0) & (wanted < vocabulary)
    return wanted, drops


@triton.jit
def _prefix(tallies, levels, wanted, SHARE: tl.constexpr):
    """The first digits of the least number kept: the largest numbers down to it reach ``wanted`` together."""
    digits = tl.arange(0, _DIGITS_TL)
    prefix = wanted * 0
    for level in range(levels):
        sums = tl.load(tallies + level * _DIGITS_TL + digits)
        reached = tl.sum(tl.where(digits[None, :] >= digits[:, None], sums[None, :], 0), 1)
        if SHARE:
            total = tl.sum(sums)
            share = (total >> _SHARE_BITS) * wanted + (((total & _SHARE_MASK) * wanted + _SHARE_MASK) >> _SHARE_BITS)
            wanted = tl.where(level == 0, share, wanted)
        digit = tl.maximum(tl.sum((reached >= wanted).to(tl.int64)) - 1, 0)
        wanted -= tl.sum(tl.where(digits > digit, sums, 0))
        prefix = prefix * _DIGITS_TL + digit
    return prefix


@triton.jit(do_not_specialize=["vocabulary", "blocks", "level"])
def _tally(
    scaled,
    least,
    tallies,
    peaks,
    temperatures,
    counts,
    shares,
    vocabulary,
    blocks,
    level,
    SHARE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    # One program: BLOCK entries of a row, at one level. Each level is a launch, because it needs the tallies of all
    # blocks of the level before; every program derives the digits found so far from them by itself, which is 16 numbers
    # a level.
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    wanted, drops = _wanted(counts, shares, row, vocabulary, tl.load(temperatures + row), SHARE)
    if drops:
        row_tallies = tallies + row * (_LEVELS_TL * _DIGITS_TL)
        above = (_prefix(row_tallies, level, wanted, SHARE) * _DIGITS_TL).to(tl.uint32)
        x = _finite(scaled, row, block, vocabulary, BLOCK)
        digit = (_order(x) >> (28 - 4 * level).to(tl.uint32)) - above
        counted = (digit < _DIGITS_TL) & (block * BLOCK + tl.arange(0, BLOCK) < vocabulary)
        if SHARE:
            counted &= x >= tl.load(least + row)
        if tl.max(counted.to(tl.int32)) > 0:
            weight = counted.to(tl.int64)
            if SHARE:
                weight *= mass(x - _row_peak(peaks, row, blocks, BLOCKS))
            digits = tl.arange(0, _DIGITS_TL)
            sums = tl.zeros([_DIGITS_TL], tl.int64)
            # Sixteen masked sums of the block, then one atomic a digit: not one atomic an entry.
            for place in tl.static_range(_DIGITS_TL):
                sums = tl.where(digits == place, tl.sum(tl.where(digit == place, weight, 0)), sums)
            tl.atomic_add(row_tallies + level * _DIGITS_TL + digits, sums, mask=sums != 0, sem="relaxed")


@triton.jit(do_not_specialize=["vocabulary"])
def _settle(least, tallies, temperatures, counts, shares, vocabulary, SHARE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    wanted, drops = _wanted(counts, shares, row, vocabulary, tl.load(temperatures + row), SHARE)
    if drops:
        order = _prefix(tallies + row * (_LEVELS_TL * _DIGITS_TL), _LEVELS_TL, wanted, SHARE)
        tl.store(least + row, _unorder(order))


@triton.jit(do_not_specialize=["blocks"])
def _floor(least, peaks, temperatures, floors, blocks, BLOCKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    share = tl.load(floors + row)
    if (tl.load(temperatures + row) >= _GREEDY_BELOW) & (share > 0):
        peak = _row_peak(peaks, row, blocks, BLOCKS)
        floor = tl.minimum(peak + log(tl.minimum(tl.maximum(share, _LEAST_SHARE), 1.0)), peak)
        tl.store(least + row, tl.maximum(tl.load(least + row), floor))


def least_kept(scaled: Tensor, draws: Draws) -> Tensor:
    """The least number of each row of ``scaled`` that is kept; float32 [n], minus infinity in greedy rows."""
    rows, vocabulary = scaled.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    least = torch.full((rows,), float("-inf"), device=scaled.device)
    peaks = torch.empty(rows, blocks, device=scaled.device)
    padded = {"BLOCKS": triton.next_power_of_2(blocks)}
    if draws.top_p is not None or draws.min_p is not None:
        args: dict[str, Tensor | int | float] = {"scaled": scaled, "peaks": peaks}
        launch(_peak, (rows, blocks), args | {"vocabulary": vocabulary, "blocks": blocks}, {"BLOCK": BLOCK}, CONFIG)
    if draws.top_k is not None:
        _select(scaled, least, peaks, draws, share=False)
    if draws.top_p is not None:
        _select(scaled, least, peaks, draws, share=True)
    if draws.min_p is not None:
        args = {"least": least, "peaks": peaks, "temperatures": draws.temperatures, "floors": draws.min_p}
        launch(_floor, (rows,), args | {"blocks": blocks}, padded, CONFIG)
    return least


def _select(scaled: Tensor, least: Tensor, peaks: Tensor, draws: Draws, share: bool) -> None:
    rows, vocabulary = scaled.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    args: dict[str, Tensor | int | float] = {
        "least": least,
        "tallies": torch.zeros(rows, _LEVELS, _DIGITS, dtype=torch.int64, device=scaled.device),
        "temperatures": draws.temperatures,
        "counts": least if draws.top_k is None else draws.top_k,
        "shares": least if draws.top_p is None else draws.top_p,
        "vocabulary": vocabulary,
    }
    tallied = args | {"scaled": scaled, "peaks": peaks, "blocks": blocks}
    constants = {"SHARE": share, "BLOCK": BLOCK, "BLOCKS": triton.next_power_of_2(blocks)}
    for level in range(_LEVELS):
        launch(_tally, (rows, blocks), tallied | {"level": level}, constants, CONFIG)
    launch(_settle, (rows,), args, {"SHARE": share}, CONFIG)
