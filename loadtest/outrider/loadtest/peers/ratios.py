"""Compares engines: speeds, ratios within turns, and thresholds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from outrider.loadtest import thresholds
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.loadtest.thresholds import Threshold


class Rivals(NamedTuple):
    """Compares the best mode that begins with ``ours`` with the best mode that begins with ``theirs``.

    ``least`` is the least ratio of their speeds, by workload (None is any) and concurrency.
    """

    ours: str
    theirs: str
    least: Mapping[tuple[str | None, int], float] = MappingProxyType({})

    def threshold(self, case: Case) -> float | None:
        """The least ratio for ``case``; None without one."""
        return self.least.get((case.workload, case.concurrency)) or self.least.get((None, case.concurrency))


class Spread(msgspec.Struct, frozen=True):
    """Median, least and greatest of some values."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of ``values``; all NaN without values."""
        return cls(statistics.median(values), min(values), max(values)) if values else cls(*[math.nan] * 3)

    def text(self, digits: int) -> str:
        """The spread as text, with ``digits`` after the point."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.greatest:.{digits}f})"


class Figure(msgspec.Struct, frozen=True):
    """A mode's tokens a second; median tokens of its prompts, and of a turn's answers."""

    case: Case
    mode: str
    tokens_per_s: Spread
    prompt_tokens: float
    tokens: int

    def __str__(self) -> str:
        """One line for the terminal."""
        counts = f"{self.prompt_tokens:.0f} tokens a prompt, {self.tokens} answered a turn"
        speed = self.tokens_per_s.text(0 if self.tokens_per_s.median >= 10 else 2)
        return f"  {self.mode:28} {speed:>22} tokens/s, {counts}"


class Ratio(msgspec.Struct, frozen=True):
    """Ratio of the speeds of two modes, over the turns."""

    case: Case
    ours: str
    theirs: str
    ratio: Spread

    def __str__(self) -> str:
        """One line for the terminal."""
        return f"  {self.ours} / {self.theirs}: {self.ratio.text(2)}"


def publish(turns: Sequence[Turn], rivals: Sequence[Rivals], out: Path | None, **content: Any) -> None:
    """Prints speeds, ratios and thresholds; writes them with ``content`` to ``out`` as JSON, if a path is given."""
    matrix = Matrix(turns)
    figures = [figure(turns, case, mode) for case in matrix.cases for mode in matrix.modes]
    ratios = [ratio for case in matrix.cases for pair in rivals if (ratio := compare(matrix, case, pair))]
    print("medians, with the least and the greatest of all turns; ratios are taken within a turn")
    for case in matrix.cases:
        rows: list[Figure | Ratio] = [*figures, *ratios]
        print("\n".join(map(str, [case, *(row for row in rows if row.case == case)])))
    thresholds.publish(out, judge(matrix, rivals), **content, figures=figures, ratios=ratios, turns=turns)


def figure(turns: Sequence[Turn], case: Case, mode: str) -> Figure:
    """Figures of a mode in a case."""
    summaries = [turn.summary for turn in turns if (turn.case, turn.mode) == (case, mode)]
    tokens = statistics.median(summary.tokens_per_s * summary.wall_s for summary in summaries)
    prompts = statistics.median(summary.prompt_tokens for summary in summaries)
    return Figure(case, mode, Spread.of([summary.tokens_per_s for summary in summaries]), prompts, round(tokens))


def best(matrix: Matrix, case: Case, prefix: str) -> str | None:
    """The mode with the highest median among modes that begin with ``prefix``; None without one."""
    speeds = {
        mode: summary.tokens_per_s
        for mode in matrix.modes
        if mode.startswith(prefix) and (summary := matrix.summary(case, mode))
    }
    return max(speeds, key=speeds.__getitem__) if speeds else None


def compare(matrix: Matrix, case: Case, rivals: Rivals) -> Ratio | None:
    """The ratio of the best modes of both sides; None if a side was not measured."""
    ours, theirs = best(matrix, case, rivals.ours), best(matrix, case, rivals.theirs)
    if ours is None or theirs is None:
        return None
    return Ratio(case, ours, theirs, Spread.of(matrix.ratios(case, ours, theirs)))


def judge(matrix: Matrix, rivals: Sequence[Rivals]) -> Iterator[Threshold]:
    """A threshold for each least ratio; a side that was not measured misses its threshold."""
    for pair in rivals:
        for case in matrix.cases:
            if (least := pair.threshold(case)) is not None:
                ratio = compare(matrix, case, pair)
                name = f"{ratio.ours} / {ratio.theirs}" if ratio else f"{pair.ours} / {pair.theirs}"
                yield Threshold(f"{name}, {case}", ratio.ratio.median if ratio else math.nan, least)
