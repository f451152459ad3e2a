"""Compares speeds of modes: modes take turns on each case, and ratios are taken within a turn."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Generic, NamedTuple, TypeVar

import msgspec
from outrider.measure.load.prompts import PromptsError
from outrider.measure.load.summary import Summary, median


def installed_drafters() -> list[str]:
    """Names of the installed drafters, each also a mode of measurements: that drafter only."""
    return sorted(point.name for point in entry_points(group="outrider.drafters"))


class Case(msgspec.Struct, frozen=True):
    """A load that every mode runs; without a temperature, each request has its own."""

    workload: str
    temperature: float | None
    concurrency: int

    def __str__(self) -> str:
        """Name in tables."""
        return f"{self.group}, {self.concurrency} at a time"

    @property
    def group(self) -> str:
        """Workload and temperature."""
        return self.workload if self.temperature is None else f"{self.workload}, T={self.temperature:g}"


class Turn(msgspec.Struct, frozen=True):
    """One case in one mode, once."""

    case: Case
    mode: str
    repeat: int
    summary: Summary

    def __str__(self) -> str:
        """One line for the terminal."""
        return f"{self.repeat + 1}: {self.case}, {self.mode}: {self.summary.tokens_per_s:.0f} tokens/s"


R = TypeVar("R")
RunTurn = Callable[[Case, Sequence[R], int], Turn]
"""Runs a case's requests in a repeat; repeat -1 is not measured."""


class Plan(NamedTuple, Generic[R]):
    """The measurement to run.

    Attributes:
        cases: cases that every mode runs in a repeat.
        supply: makes new requests for a case.
        warm_up: requests that every way answers before the measurement.
        repeats: turns of each case.
        minutes: time limit; later turns are left out.
    """

    cases: list[Case]
    supply: Callable[[Case], Sequence[R]]
    warm_up: Sequence[R]
    repeats: int
    minutes: float


class Matrix:
    """All turns of a measurement, by case and mode."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = {(turn.case, turn.mode, turn.repeat): turn.summary for turn in turns}
        self.cases = list(dict.fromkeys(turn.case for turn in turns))
        self.modes = list(dict.fromkeys(turn.mode for turn in turns))

    def summary(self, case: Case, mode: str) -> Summary | None:
        """Medians over the repeats; None if the mode did not run."""
        summaries = [summary for (c, m, _), summary in self._turns.items() if (c, m) == (case, mode)]
        return median(summaries) if summaries else None

    def ratios(self, case: Case, mode: str, to: str = "off") -> list[float]:
        """Ratio of tokens a second in every repeat that ran both modes."""
        return [
            summary.tokens_per_s / self._turns[case, to, repeat].tokens_per_s
            for (c, m, repeat), summary in self._turns.items()
            if (c, m) == (case, mode) and (case, to, repeat) in self._turns
        ]

    def ratio(self, case: Case, mode: str, to: str = "off") -> float:
        """Median of `ratios`; NaN if no repeat ran both modes."""
        ratios = self.ratios(case, mode, to)
        return statistics.median(ratios) if ratios else math.nan


def rotated(names: list[str], turn: int) -> list[str]:
    """``names``, rotated by ``turn`` places."""
    first = turn % len(names)
    return names[first:] + names[:first]


def measure(plan: Plan[R], ways: Mapping[str, RunTurn[R]]) -> list[Turn]:
    """Runs all turns: every way answers the same requests of a case; the order of ways rotates."""
    until = time.monotonic() + 60 * plan.minutes
    turns: list[Turn] = []
    for run_turn in ways.values():
        run_turn(Case("warm-up", 0.0, 2), plan.warm_up, -1)
    for repeat, (number, case) in itertools.product(range(plan.repeats), enumerate(plan.cases)):
        if time.monotonic() >= until:
            break
        try:
            requests = plan.supply(case)
        except PromptsError as error:
            print(f"Nothing more is measured: {error}")
            break
        turns += [ways[name](case, requests, repeat) for name in rotated(list(ways), repeat + number)]
    return turns
