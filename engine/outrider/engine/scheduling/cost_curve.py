"""Seconds of a step by its number of rows, measured at start."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of a step by its number of rows, measured at some numbers and interpolated between them.

    Attributes:
        rows: ascending numbers of rows.
        seconds: time of a step at each number; never falls.
    """

    rows: Sequence[int]
    seconds: Sequence[float]
    _table: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    _least: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _beside: dict[tuple[int, int, int], CostCurve] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, rows: int) -> float:
        """Seconds of a step over ``rows`` rows: those of the first point below it, in proportion beyond the last."""
        if rows >= len(self._table):
            self._table.extend(map(self._at, range(len(self._table), rows + 1)))
        return self._table[rows]

    def _at(self, rows: int) -> float:
        place = bisect_left(self.rows, rows)
        if place == len(self.rows):
            return self.seconds[-1] * rows / self.rows[-1]
        if place == 0 or self.rows[place] == rows:
            return self.seconds[place]
        low, high = self.rows[place - 1], self.rows[place]
        share = (rows - low) / (high - low)
        return self.seconds[place - 1] * (1 - share) + self.seconds[place] * share

    def most_rows(self, seconds: float, limit: int) -> int:
        """The most rows, up to ``limit`` and at least 1, whose step takes at most ``seconds``."""
        return max(bisect_right(range(limit + 1), seconds, key=self) - 1, 1)

    def least_value(self, sequences: int, rows: int, most: int) -> float:
        """Value below which no guess pays, in a step of ``rows`` rows and up to ``most`` guesses.

        A guess pays if it brings more tokens a second than the step without it. The bound is the cost of the cheapest
        row.
        """
        if (rows, most) not in self._least:
            if len(self._least) >= _REMEMBERED:
                self._least.clear()
            self._least[rows, most] = self._cheapest(rows, most)
        return sequences * self._least[rows, most]

    def beside(self, prompts: int, rows: int, most: int) -> CostCurve:
        """The curve of ``rows`` to ``rows + most`` rows beside ``prompts`` rows of prompts, less the prompts' time.

        Prompts take their time in this step or in another one. So a guess beside prompts is worth as much as in a step
        of ``rows`` rows, and costs what one more row adds to the whole step.
        """
        key = prompts, rows, most
        if key not in self._beside:
            if len(self._beside) >= _REMEMBERED:
                self._beside.clear()
            self._beside[key] = self._without(*key)
        return self._beside[key]

    def _without(self, prompts: int, rows: int, most: int) -> CostCurve:
        alone, last = self(rows) - self(prompts + rows), prompts + rows + most
        inner = [point for point in self.rows if prompts + rows < point < last]
        counts = [prompts + rows, *inner, *([last] if most > 0 else [])]
        return CostCurve([count - prompts for count in counts], [self(count) + alone for count in counts])

    def _cheapest(self, rows: int, most: int) -> float:
        """The least that a guess's row adds, as a share of the step without guesses."""
        points = [(rows, self(rows))]
        points += [point for point in zip(self.rows, self.seconds, strict=True) if rows < point[0] < rows + most]
        points.append((rows + max(most, 1), self(rows + max(most, 1))))
        slopes = [_slope(left, right) for left, right in pairwise(points)]
        return min(slopes) / points[0][1]

    @classmethod
    def through(cls, measured: Sequence[tuple[int, float]]) -> CostCurve:
        """The highest convex, never falling curve below ``measured`` pairs (rows, seconds), which ascend by rows.

        Other work on the machine only adds to a measurement, and each row adds about the same time. So a point above
        the line between its neighbours counts as noise.
        """
        hull: list[tuple[int, float]] = []
        for point in measured:
            while len(hull) > 1 and _slope(hull[-2], point) <= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append(point)
        while len(hull) > 1 and hull[0][1] >= hull[1][1]:
            del hull[0]
        return cls([rows for rows, _ in hull], [seconds for _, seconds in hull])


def most_measured(device: str, guesses: int, rows: int) -> int:
    """Most rows at which a step is measured on a kind of device; a step has up to ``guesses``, and ``rows`` in all.

    A GPU takes about as long for hundreds of rows as for one, so all that a step may have are measured. On a CPU time
    grows with rows, and more of them would only lengthen the start.
    """
    return rows if device == "cuda" else guesses + 1


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
