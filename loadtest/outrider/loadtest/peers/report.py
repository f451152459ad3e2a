"""What engines came to beside each other: speeds, ratios within turns, and bars."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar


class Rivals(NamedTuple):
    """The best of the modes that begin with ``ours``, against the best of those that begin with ``theirs``.

    ``least`` is how many times as fast ours should be, by workload (None is any) and concurrency.
    """

    ours: str
    theirs: str
    least: Mapping[tuple[str | None, int], float] = MappingProxyType({})

    def bar(self, case: Case) -> float | None:
        """What the ratio should be; None where nothing is asked of it."""
        return self.least.get((case.workload, case.concurrency)) or self.least.get((None, case.concurrency))


class Spread(msgspec.Struct, frozen=True):
    """Some values."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of ``values``; of none all is NaN."""
        return cls(statistics.median(values), min(values), max(values)) if values else cls(*[math.nan] * 3)

    def told(self, digits: int) -> str:
        """Median, least and greatest."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.greatest:.{digits}f})"


class Figure(msgspec.Struct, frozen=True):
    """A mode's tokens a second; the median of its prompts' tokens, and of the tokens of a turn's answers."""

    case: Case
    mode: str
    tokens_per_s: Spread
    prompt_tokens: float
    tokens: int

    def __str__(self) -> str:
        """One line."""
        counts = f"{self.prompt_tokens:.0f} tokens a prompt, {self.tokens} answered a turn"
        return f"  {self.mode:28} {self.tokens_per_s.told(0):>22} tokens/s, {counts}"


class Ratio(msgspec.Struct, frozen=True):
    """How many times as fast one mode was as another, turn by turn."""

    case: Case
    ours: str
    theirs: str
    ratio: Spread

    def __str__(self) -> str:
        """One line."""
        return f"  {self.ours} / {self.theirs}: {self.ratio.told(2)}"


def publish(found: Sequence[Turn], rivals: Sequence[Rivals], out: Path | None, **content: Any) -> None:
    """Prints speeds, ratios and bars, and writes them with ``content`` to ``out`` as JSON, if that is given."""
    matrix = Matrix(found)
    figures = [figure(found, case, mode) for case in matrix.cases for mode in matrix.modes]
    ratios = [ratio for case in matrix.cases for each in rivals if (ratio := compare(matrix, case, each))]
    print("medians, with the least and the greatest of all turns; ratios are taken within a turn")
    for case in matrix.cases:
        shown = [each for each in figures if each.case == case], [each for each in ratios if each.case == case]
        print("\n".join(map(str, [case, *shown[0], *shown[1]])))
    bars.publish(out, judge(matrix, rivals), **content, figures=figures, ratios=ratios, turns=found)


def figure(found: Sequence[Turn], case: Case, mode: str) -> Figure:
    """What a mode came to in a case."""
    some = [turn.summary for turn in found if (turn.case, turn.mode) == (case, mode)]
    tokens = statistics.median(each.tokens_per_s * each.wall_s for each in some)
    prompts = statistics.median(each.prompt_tokens for each in some)
    return Figure(case, mode, Spread.of([each.tokens_per_s for each in some]), prompts, round(tokens))


def best(matrix: Matrix, case: Case, prefix: str) -> str | None:
    """The mode with the highest median, of those that begin with ``prefix``; None of none."""
    speeds = {
        mode: summary.tokens_per_s
        for mode in matrix.modes
        if mode.startswith(prefix) and (summary := matrix.summary(case, mode))
    }
    return max(speeds, key=speeds.__getitem__) if speeds else None


def compare(matrix: Matrix, case: Case, rivals: Rivals) -> Ratio | None:
    """The ratio of the best of both sides; None where a side was not measured."""
    ours, theirs = best(matrix, case, rivals.ours), best(matrix, case, rivals.theirs)
    if ours is None or theirs is None:
        return None
    return Ratio(case, ours, theirs, Spread.of(matrix.ratios(case, ours, theirs)))


def judge(matrix: Matrix, rivals: Sequence[Rivals]) -> Iterator[Bar]:
    """A bar wherever a ratio is asked for, missed where a side was not measured."""
    for each in rivals:
        for case in matrix.cases:
            if (least := each.bar(case)) is not None:
                found = compare(matrix, case, each)
                name = f"{found.ours} / {found.theirs}" if found else f"{each.ours} / {each.theirs}"
                yield Bar(f"{name}, {case}", found.ratio.median if found else math.nan, least)
