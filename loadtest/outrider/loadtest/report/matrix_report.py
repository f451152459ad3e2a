"""Results of a speed matrix: ratios within turns, their medians, bars, a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from outrider.loadtest.load.turns import Case, Matrix, Turn, installed_drafters
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.loadtest.report.bench_report import machine

GREEDY, SAMPLED, HARMLESS, MERGED = 2.5, 2.2, 0.98, 0.98
"""Least ratios to plain decoding: one greedy request, one at temperature 1, any case; and to the best drafter."""


def best_single(matrix: Matrix, case: Case) -> str:
    """The fastest single drafter; empty if none ran."""
    single = [mode for mode in installed_drafters() if mode in matrix.modes]
    return max(single, key=lambda mode: matrix.ratio(case, mode), default="")


def judge(matrix: Matrix) -> Iterator[Bar]:
    """The bars of a matrix."""
    for case in matrix.cases:
        if case.concurrency == 1 and case.temperature in (0.0, 1.0) and "on" in matrix.modes:
            least = GREEDY if case.temperature == 0 else SAMPLED
            yield Bar(f"on / off, {case}", matrix.ratio(case, "on"), least)
            if "fast" in matrix.modes:
                yield Bar(f"on / fast, {case}", matrix.ratio(case, "on", "fast"), least)
    for mode in (mode for mode in matrix.modes if mode not in ("off", "fast")):
        case = min(matrix.cases, key=lambda case: matrix.ratio(case, mode))
        yield Bar(f"{mode} / off at its worst, {case}", matrix.ratio(case, mode), HARMLESS)
    if "on" in matrix.modes and best_single(matrix, matrix.cases[0]):
        merged = {case: matrix.ratio(case, "on", best_single(matrix, case)) for case in matrix.cases}
        case = min(merged, key=lambda case: merged[case])
        best = f"the best drafter alone ({best_single(matrix, case)})"
        yield Bar(f"on / {best} at its worst, {case}", merged[case], MERGED)


def publish(turns: Sequence[Turn], settings: dict[str, Any], out: Path) -> None:
    """Prints the table and the bars; writes ``matrix.json`` and ``matrix.png`` into ``out``."""
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


def _draw(panel: Axes, matrix: Matrix, workload: str, temperature: float | None) -> None:
    cases = [case for case in matrix.cases if (case.workload, case.temperature) == (workload, temperature)]
    for mode in (mode for mode in matrix.modes if mode != "off"):
        ratios = [matrix.ratio(case, mode) for case in cases]
        panel.plot([case.concurrency for case in cases], ratios, marker="o", label=mode, lw=3 if mode == "on" else 1)
    panel.axhline(1.0, color="grey", lw=0.8)
    panel.set_xscale("log", base=2)
    panel.set_xticks([case.concurrency for case in cases], [str(case.concurrency) for case in cases])
    panel.set_title(cases[0].group, fontsize=10)
    panel.set_xlabel("requests at a time")
    panel.set_ylabel("tokens/s, ratio to off")
