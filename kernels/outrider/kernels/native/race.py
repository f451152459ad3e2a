"""The race by the compiled library, where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int64, c_uint64, c_void_p
from functools import cache

from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, library
from torch import Tensor

Race = Callable[[Tensor, Sequence[int], Sequence[int], Sequence[float]], list[int] | None]
"""What rows of contiguous float32 logits [n, V] draw by their seeds, positions and temperatures, as
`outrider.kernels.race_sample` defines it where nothing is penalised, masked or truncated; -1 where nothing can be
drawn. None where a logit is not a number below the limit."""


@cache
def native_race(greedy_below: float, limit: float) -> Race | None:
    """The race with these constants; None where it cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return race_of(library(), greedy_below, limit)
    except NativeUnavailable:
        return None


def race_of(loaded: ctypes.CDLL, greedy_below: float, limit: float) -> Race:
    """The function of a library."""
    call = loaded.outrider_race
    call.argtypes = (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_float, c_float, c_void_p)

    def race(
        logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
    ) -> list[int] | None:
        rows, vocabulary = logits.shape
        words, places, heats = (c_uint64 * rows)(*seeds), (c_int64 * rows)(*positions), (c_float * rows)(*temperatures)
        tokens = (c_int64 * rows)()
        given = (logits.data_ptr(), rows, vocabulary, words, places, heats)
        return list(tokens) if call(*given, greedy_below, limit, tokens) else None

    return race
