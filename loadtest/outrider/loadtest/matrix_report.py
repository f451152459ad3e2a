"""What a speed matrix came to: ratios within turns, their medians, the bars, a table and a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from outrider.loadtest import bars
from outrider.loadtest.bars import Bar
from outrider.loadtest.report import machine
from outrider.loadtest.summary import Summary, median

SINGLE = ("model", "ngram", "suffix", "medusa")
"""Modes of one drafter alone."""
GREEDY, SAMPLED, HARMLESS, MERGED = 2.5, 2.2, 0.98, 0.98
"""Least ratios: to plain decoding alone and greedy, at temperature 1, of anything anywhere; to the best drafter."""


class Case(msgspec.Struct, frozen=True):
    """What is run in every mode."""

    workload: str
    temperature: float
    concurrency: int

    def __str__(self) -> str:
        """As named in tables."""
        return f"{self.workload}, T={self.temperature:g}, {self.concurrency} at a time"


class Turn(msgspec.Struct, frozen=True):
    """One case in one mode, once."""

    case: Case
    mode: str
    repeat: int
    summary: Summary

    def __str__(self) -> str:
        """One line."""
        return f"{self.repeat + 1}: {self.case}, {self.mode}: {self.summary.tokens_per_s:.0f} tokens/s"


class Matrix:
    """The turns of a measurement."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = {(turn.case, turn.mode, turn.repeat): turn.summary for turn in turns}
        self.cases = list(dict.fromkeys(turn.case for turn in turns))
        self.modes = list(dict.fromkeys(turn.mode for turn in turns))

    def summary(self, case: Case, mode: str) -> Summary | None:
        """Medians over the repeats; None where the mode was not run."""
        found = [summary for (c, m, _), summary in self._turns.items() if (c, m) == (case, mode)]
        return median(found) if found else None

    def ratio(self, case: Case, mode: str, to: str = "off") -> float:
        """Median over the repeats of the ratio of tokens a second; NaN where they did not run together."""
        pairs = [
            (summary, self._turns[case, to, repeat])
            for (c, m, repeat), summary in self._turns.items()
            if (c, m) == (case, mode) and (case, to, repeat) in self._turns
        ]
        return statistics.median(a.tokens_per_s / b.tokens_per_s for a, b in pairs) if pairs else math.nan

    def best_single(self, case: Case) -> str | None:
        """The drafter that is quickest alone."""
        found = [mode for mode in SINGLE if mode in self.modes]
        return max(found, key=lambda mode: self.ratio(case, mode), default=None)


def judge(matrix: Matrix) -> Iterator[Bar]:
    """The bars."""
    for case in matrix.cases:
        if case.concurrency == 1 and case.temperature in (0.0, 1.0) and "on" in matrix.modes:
            least = GREEDY if case.temperature == 0 else SAMPLED
            yield Bar(f"on / off, {case}", matrix.ratio(case, "on"), least)
            if "fast" in matrix.modes:
                yield Bar(f"on / fast, {case}", matrix.ratio(case, "on", "fast"), least)
    for mode in (mode for mode in matrix.modes if mode not in ("off", "fast")):
        case = min(matrix.cases, key=lambda case: matrix.ratio(case, mode))
        yield Bar(f"{mode} / off at its worst, {case}", matrix.ratio(case, mode), HARMLESS)
    if "on" in matrix.modes and matrix.best_single(matrix.cases[0]):
        merged = {case: matrix.ratio(case, "on", matrix.best_single(case) or "") for case in matrix.cases}
        case = min(merged, key=lambda case: merged[case])
        best = f"the best drafter alone ({matrix.best_single(case)})"
        yield Bar(f"on / {best} at its worst, {case}", merged[case], MERGED)


def publish(turns: Sequence[Turn], settings: dict[str, Any], out: Path) -> None:
    """Prints the table and the bars, writes ``matrix.json`` and ``matrix.png`` into ``out``."""
    matrix = Matrix(turns)
    print("\n".join(_lines(matrix)))
    figures = [
        {"case": case, "mode": mode, "to_off": matrix.ratio(case, mode), "to_fast": matrix.ratio(case, mode, "fast")}
        | {"median": matrix.summary(case, mode)}
        for case in matrix.cases
        for mode in matrix.modes
    ]
    bars.publish(out / "matrix.json", judge(matrix), settings=settings, figures=figures, turns=turns)
    _save_picture(matrix, out / "matrix.png")


def _lines(matrix: Matrix) -> Iterator[str]:
    yield f"{'':28}" + "".join(f"{mode:>13}" for mode in matrix.modes) + "   (tokens/s, ratio to off)"
    for case in matrix.cases:
        yield f"{case!s:28}" + "".join(f"{_cell(matrix, case, mode):>13}" for mode in matrix.modes)


def _cell(matrix: Matrix, case: Case, mode: str) -> str:
    summary = matrix.summary(case, mode)
    return f"{summary.tokens_per_s:.0f} {matrix.ratio(case, mode):5.2f}" if summary else "-"


def _save_picture(matrix: Matrix, path: Path) -> None:
    rows = list(dict.fromkeys(case.workload for case in matrix.cases))
    columns = list(dict.fromkeys(case.temperature for case in matrix.cases))
    figure = Figure(figsize=(5 * len(columns) + 1, 3.5 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for row, workload in enumerate(rows):
        for column, temperature in enumerate(columns):
            _draw(panels[row][column], matrix, workload, temperature)
    panels[0][0].legend(fontsize=8)
    figure.suptitle(", ".join(machine()[key] for key in ("outrider", "cpu", "cores") if key in machine()), fontsize=9)
    figure.savefig(path, dpi=150)


def _draw(panel: Axes, matrix: Matrix, workload: str, temperature: float) -> None:
    cases = [case for case in matrix.cases if (case.workload, case.temperature) == (workload, temperature)]
    for mode in (mode for mode in matrix.modes if mode != "off"):
        ratios = [matrix.ratio(case, mode) for case in cases]
        panel.plot([case.concurrency for case in cases], ratios, marker="o", label=mode, lw=3 if mode == "on" else 1)
    panel.axhline(1.0, color="grey", lw=0.8)
    panel.set_xscale("log", base=2)
    panel.set_xticks([case.concurrency for case in cases], [str(case.concurrency) for case in cases])
    panel.set_title(f"{workload}, temperature {temperature:g}", fontsize=10)
    panel.set_xlabel("requests at a time")
    panel.set_ylabel("tokens/s, ratio to off")
