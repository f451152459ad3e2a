"""Philox and the exponential variates in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.elementary import constants
from outrider.kernels.elementary.triton import log, log_complement
from outrider.kernels.launch import Config, launch
from torch import Tensor

_BLOCK = 1024
_HALF_WORD, _WORD_UNIT = tl.constexpr(constants.HALF_WORD), tl.constexpr(constants.WORD_UNIT)
_LARGEST_UNIFORM = tl.constexpr(constants.LARGEST_UNIFORM)


@triton.jit
def words(seed, position, first, BLOCK: tl.constexpr):
    """Words of the vocabulary entries ``first`` (a multiple of 4) to ``first + BLOCK - 1``: uint32 [BLOCK]."""
    lanes = (first // 4 + tl.arange(0, BLOCK // 4)).to(tl.uint32)
    zero = lanes * 0
    w0, w1, w2, w3 = tl.philox(seed, lanes, zero + position.to(tl.uint32), zero, zero)
    # Each counter gives four words; joined so, those of one counter are neighbours: w0, w1, w2, w3.
    return tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape([BLOCK])


@triton.jit
def word(seed, position, entry):
    """The word of one vocabulary entry: uint32."""
    lane = (entry // 4).to(tl.uint32)
    zero = lane * 0
    w0, w1, w2, w3 = tl.philox(seed, lane, zero + position.to(tl.uint32), zero, zero)
    place = entry % 4
    return tl.where(place == 0, w0, tl.where(place == 1, w1, tl.where(place == 2, w2, w3)))


@triton.jit
def log_exponential(drawn):
    """The logarithm of the variate of each word; float32, with the bits of `reference.log_exponential`."""
    uniform = tl.minimum((drawn.to(tl.float32) + _HALF_WORD) * _WORD_UNIT, _LARGEST_UNIFORM)
    return log(-log_complement(uniform))


@triton.jit(do_not_specialize=["vocabulary"])
def _log_exponentials(seeds, positions, out, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    entries = first + tl.arange(0, BLOCK)
    drawn = words(tl.load(seeds + row), tl.load(positions + row), first, BLOCK)
    tl.store(out + row * vocabulary + entries, log_exponential(drawn), entries < vocabulary)


def log_exponentials(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """See `outrider.kernels.philox.log_exponentials`.

    Raises:
        ValueError: ``seeds`` or ``positions`` are not contiguous int64 [n].
    """
    for name, tensor in (("seeds", seeds), ("positions", positions)):
        if tensor.shape != (len(positions),) or tensor.dtype != torch.int64 or not tensor.is_contiguous():
            raise ValueError(f"{name} are {tensor.dtype} {tuple(tensor.shape)}; they must be contiguous int64 [n]")
    out = torch.empty(len(positions), vocabulary, device=positions.device)
    grid = (len(positions), triton.cdiv(vocabulary, _BLOCK))
    launch(
        _log_exponentials,
        grid,
        {"seeds": seeds, "positions": positions, "out": out, "vocabulary": vocabulary},
        {"BLOCK": _BLOCK},
        Config(warps=4, fused=False),
    )
    return out
