"""The variates on a CPU: by the compiled library, or by NumPy over 64-bit words, a few thousand counters at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from outrider.kernels.backend import compiled
from outrider.kernels.philox.reference import MULTIPLIERS, ROUNDS, WEYL, WORD, log_exponential
from outrider.native.variates import Variates, variates_of
from torch import Tensor

_Words = npt.NDArray[np.uint64]
_Counter = tuple[_Words, _Words, _Words, _Words]

_MASK, _HALF = np.uint64(WORD), np.uint64(32)
_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_NARROW = 2
_PIECE = 16384
"""Counters that are computed together, so that they stay in a core's cache."""


def log_exponentials(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """See `outrider.kernels.philox.log_exponentials`; ``seeds`` and ``positions`` int64 [n] on the CPU."""
    if (variates := native_variates()) is not None:
        return variates(seeds.contiguous(), positions.contiguous(), vocabulary)
    return log_exponentials_by_numpy(seeds, positions, vocabulary)


def native_variates() -> Variates | None:
    """The compiled library's function; None where there is none."""
    return None if (library := compiled()) is None else variates_of(library)


def log_exponentials_by_numpy(seeds: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Like `log_exponentials`, without compiled code."""
    out = torch.empty(len(positions), vocabulary)
    lanes = np.arange((vocabulary + 3) // 4, dtype=np.uint64)
    step = max(1, _PIECE // max(1, len(lanes)))
    keys, counters = seeds.numpy().view(np.uint64)[:, None], positions.numpy().view(np.uint64)[:, None]
    for start in range(0, len(positions), step):
        rows = slice(start, start + step)
        for columns in _pieces(len(lanes)):
            drawn = _words(lanes[None, columns], counters[rows], keys[rows])
            span = slice(4 * columns.start, 4 * columns.start + drawn.shape[1])
            out[rows, span] = log_exponential(torch.from_numpy(drawn))[:, : vocabulary - span.start]
    return out


def _pieces(lanes: int) -> Iterator[slice]:
    return (slice(start, min(lanes, start + _PIECE)) for start in range(0, lanes, _PIECE))


def _words(lanes: _Words, positions: _Words, keys: _Words) -> npt.NDArray[np.float32]:
    """Words of the counters (lane, position, 0, 0), as float32 [n, 4 * lanes].

    The first two rounds run before the counters are broadcast, while most words are the same for all lanes or for all
    positions. Words c1 and c3 carry bits above their 32, which the next round drops.
    """
    keys = keys[:1] if (keys == keys[0]).all() else keys
    counter: _Counter = lanes, positions, np.zeros_like(lanes), np.zeros_like(lanes)
    for index in range(_NARROW):
        counter = _round(*counter, *_keys(keys, index))
    shape = (len(positions), lanes.shape[1])
    c0, c1, c2, c3 = (np.broadcast_to(word, shape).copy() for word in counter)
    high = np.empty_like(c0)
    for index in range(_NARROW, ROUNDS):
        k0, k1 = _keys(keys, index)
        c0 *= _M0
        c2 *= _M1
        _mix(c1, np.right_shift(c2, _HALF, out=high), k0)
        _mix(c3, np.right_shift(c0, _HALF, out=high), k1)
        c0, c1, c2, c3 = c1, c2, c3, c0
    drawn = np.empty((*shape, 4), dtype=np.float32)
    for place, word in enumerate((c0, c1, c2, c3)):
        drawn[..., place] = (word & _MASK).view(np.int64)
    return drawn.reshape(shape[0], -1)


def _keys(keys: _Words, index: int) -> tuple[_Words, _Words]:
    return (keys & _MASK) + np.uint64(index * WEYL[0]), (keys >> _HALF) + np.uint64(index * WEYL[1])


def _round(c0: _Words, c1: _Words, c2: _Words, c3: _Words, k0: _Words, k1: _Words) -> _Counter:
    product0, product1 = c0 * _M0, c2 * _M1
    return (product1 >> _HALF ^ c1 ^ k0) & _MASK, product1, (product0 >> _HALF ^ c3 ^ k1) & _MASK, product0


def _mix(word: _Words, high: _Words, key: _Words) -> None:
    word ^= high
    word ^= key
    word &= _MASK
