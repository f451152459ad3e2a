"""The race of a step's rows in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.native.library import Library, address, at, ffi
from torch import Tensor

Race = Callable[[Tensor, Sequence[int], Sequence[int], Sequence[float]], list[int] | None]
"""What rows of contiguous float32 logits [n, V] draw by their seeds, positions and temperatures, as
`outrider.kernels.race_sample` defines it where nothing is penalised, masked or truncated; -1 where nothing can be
drawn. None where a logit is not a number below the limit."""

_BRIEF = 1 << 16  # variates, of 3 ns each


def race_of(library: Library, greedy_below: float, limit: float) -> Race:
    """The function of a library, with these constants."""
    lasting, short = library.functions.outrider_race, library.brief("outrider_race")

    def race(
        logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
    ) -> list[int] | None:
        n, vocabulary = logits.shape
        if not n == len(seeds) == len(positions) == len(temperatures):
            told = f"{len(seeds)} seeds, {len(positions)} positions and {len(temperatures)} temperatures"
            raise ValueError(f"{told} for {n} rows")
        given = zip(("uint64_t[]", "int64_t[]", "float[]"), (seeds, positions, temperatures), strict=True)
        parts = [ffi.new(kind, list(numbers)) for kind, numbers in given]
        rows = ffi.new("outrider_race_rows *", (address(logits), *parts, n, vocabulary))
        tokens = ffi.new("int64_t[]", n)
        if n * vocabulary <= _BRIEF:
            drawn = short(at(rows), greedy_below, limit, at(tokens))
        else:
            drawn = lasting(rows, greedy_below, limit, tokens)
        return ffi.unpack(tokens, n) if drawn else None

    return race
