"""The race by the compiled library, where there is one."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int64, c_void_p
from functools import cache

from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, brief, library
from torch import Tensor

Race = Callable[[Tensor, Sequence[int], Sequence[int], Sequence[float]], list[int] | None]
"""What rows of contiguous float32 logits [n, V] draw by their seeds, positions and temperatures, as
`outrider.kernels.race_sample` defines it where nothing is penalised, masked or truncated; -1 where nothing can be
drawn. None where a logit is not a number below the limit."""

_BRIEF = 1 << 16  # variates, of 3 ns each


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
    lasting, short = loaded.outrider_race, brief(loaded).outrider_race
    for each in (lasting, short):
        each.argtypes = (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_float, c_float, c_void_p)

    def race(
        logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
    ) -> list[int] | None:
        rows, vocabulary = logits.shape
        if not rows == len(seeds) == len(positions) == len(temperatures):
            given = f"{len(seeds)} seeds, {len(positions)} positions and {len(temperatures)} temperatures"
            raise ValueError(f"{given} for {rows} rows")
        parts = array("Q", seeds), array("q", positions), array("f", temperatures), array("q", bytes(8 * rows))
        words, places, heats, room = (part.buffer_info()[0] for part in parts)
        call = short if rows * vocabulary <= _BRIEF else lasting
        drawn = call(logits.data_ptr(), rows, vocabulary, words, places, heats, greedy_below, limit, room)
        return parts[-1].tolist() if drawn else None

    return race
