"""A drafter's best guesses at the draws of some rows, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from outrider.native.library import Library, checked, data_pointer, ffi
from torch import Tensor


class Drawing(NamedTuple):
    """How the target draws a sequence's tokens.

    Attributes:
        seed: of the dice; ignored where ``temperature`` is 0.
        temperature: 0 where it is greedy.
        top_k: likeliest tokens that are kept, 0 for all.
        top_p: probability of the likeliest tokens that are kept.
        min_p: of the likeliest token's probability, what others need to be kept.
    """

    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @property
    def shaping(self) -> dict[str, float]:
        """The fields of an ``outrider_shaping``."""
        return dict(zip(self._fields[1:], self[1:], strict=True))


class RankRows(NamedTuple):
    """Rows of scores.

    Attributes:
        logits: contiguous float32 [n, ids] of a drafter; overwritten.
        drawings: of each row's sequence.
        positions: absolute position of each row's guesses.
        targets: contiguous int64 [ids] ascending, the target's id of each id; None where they are equal.
        vocabulary: number of the target's ids.
    """

    logits: Tensor
    drawings: Sequence[Drawing]
    positions: Sequence[int]
    targets: Tensor | None
    vocabulary: int


Rank = Callable[[RankRows, int], list[tuple[list[int], list[float]]]]
"""The best guesses of each row, at most so many, best first, and their shares of the race
(`outrider.kernels.race_sample.race_topk`)."""


@cache
def rank_of(library: Library) -> Rank:
    """The library's ranking."""
    call = library.functions.outrider_rank

    def rank(rows: RankRows, most: int) -> list[tuple[list[int], list[float]]]:
        n, ids = rows.logits.shape
        last = ids - 1 if rows.targets is None else int(rows.targets[-1])
        if last >= rows.vocabulary or not n == len(rows.drawings) == len(rows.positions):
            raise ValueError(f"{n} rows over ids up to {last}, of {rows.vocabulary}; {len(rows.drawings)} drawings")
        columns = (
            ffi.new("uint64_t[]", [drawing.seed for drawing in rows.drawings]),
            ffi.new("int64_t[]", list(rows.positions)),
            ffi.new("outrider_shaping[]", [drawing.shaping for drawing in rows.drawings]),
        )
        targets = ffi.NULL if rows.targets is None else data_pointer(rows.targets)
        inner = ffi.new("outrider_rank_rows *", (data_pointer(rows.logits), *columns, targets, n, ids, rows.vocabulary))
        tokens, shares, found = (ffi.new(f"{kind}[]", n * most) for kind in ("int32_t", "float", "int32_t"))
        checked(call(inner, most, tokens, shares, found))
        counts, said, held = ffi.unpack(found, n), ffi.unpack(tokens, n * most), ffi.unpack(shares, n * most)
        spans = [slice(row * most, row * most + count) for row, count in enumerate(counts)]
        return [(said[span], held[span]) for span in spans]

    return rank
