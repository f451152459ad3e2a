"""The exponential race of a step's rows, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from outrider.native.library import Library, checked, data_pointer, ffi, pointer_value, status_name
from torch import Tensor

Race = Callable[[Tensor, Sequence[int], Sequence[int], Sequence[float]], list[int] | None]
"""Draws a token for each row of contiguous float32 logits [n, V], by its seed, position and temperature, as
`outrider.kernels.race_sample` does without penalties, mask and truncation; -1 where nothing can be drawn. Returns None
where a logit is not a number below the limit."""

_BRIEF = 1 << 16  # variates, of 3 ns each


@cache
def race_of(library: Library, greedy_below: float, limit: float) -> Race:
    """The library's race, with these constants."""
    lasting, short = library.functions.outrider_race, library.brief_function("outrider_race")

    def race(
        logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
    ) -> list[int] | None:
        n, vocabulary = logits.shape
        if not n == len(seeds) == len(positions) == len(temperatures):
            counts = f"{len(seeds)} seeds, {len(positions)} positions and {len(temperatures)} temperatures"
            raise ValueError(f"{counts} for {n} rows")
        columns = zip(("uint64_t[]", "int64_t[]", "float[]"), (seeds, positions, temperatures), strict=True)
        parts = [ffi.new(kind, list(numbers)) for kind, numbers in columns]
        rows = ffi.new("outrider_race_rows *", (data_pointer(logits), *parts, n, vocabulary))
        tokens = ffi.new("int64_t[]", n)
        if n * vocabulary <= _BRIEF:
            status = short(pointer_value(rows), greedy_below, limit, pointer_value(tokens))
        else:
            status = lasting(rows, greedy_below, limit, tokens)
        if status and status_name(status) == "OUTRIDER_BAD_LOGIT":
            return None
        checked(status)
        drawn: list[int] = ffi.unpack(tokens, n)
        return drawn

    return race
