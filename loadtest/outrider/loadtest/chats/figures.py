"""Figures of chat requests: ratios and their control, tokens a step, and regret."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.loadtest import thresholds
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.loadtest.thresholds import Threshold
from outrider.measure.chats.supply import MIXED

REGRET = 0.03
"""Largest allowed loss of ``on`` against the best fixed mode in hindsight, for mixed requests."""
PREDICTING = ("prediction", "misprediction")
_NOT_FIXED = ("control", "on", *PREDICTING)


def publish(turns: Sequence[Turn], settings: Mapping[str, Any], out: Path) -> None:
    """Prints a table and thresholds; writes ``matrix.json`` with ``settings``, the options, into ``out``."""
    matrix = Matrix(turns)
    figures = [figure(matrix, case, mode) for case in matrix.cases for mode in matrix.modes]
    print("\n".join(_lines(matrix, figures)))
    judged = [*_never_below(matrix), *_never_far_below(matrix)]
    thresholds.publish(out / "matrix.json", judged, settings=dict(settings), figures=figures, turns=turns)


def figure(matrix: Matrix, case: Case, mode: str) -> dict[str, Any]:
    """Medians of a case in a mode, with the least and greatest ratio."""
    summary, best = matrix.summary(case, mode), best_fixed(matrix, case)
    return {
        "case": case,
        "mode": mode,
        "median": summary,
        "to_off": _spread(matrix.ratios(case, mode)),
        "regret": 1 - matrix.ratio(case, mode, best),
        "best_fixed": best,
    }


def best_fixed(matrix: Matrix, case: Case) -> str:
    """The best mode for all of a case's requests in hindsight, among modes with a fixed choice."""
    fixed = [mode for mode in matrix.modes if mode not in _NOT_FIXED]
    return max(fixed, key=lambda mode: matrix.ratio(case, mode))


def _spread(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Median, least and greatest value; None without values."""
    return (statistics.median(values), min(values), max(values)) if values else None


def _lines(matrix: Matrix, figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "medians; ratios to off with the least and the greatest of all turns; control is off a second time"
    for row in (row for row in figures if row["median"]):
        case, mode, summary = row["case"], row["mode"], row["median"]
        line = f"{case!s:28} {mode:8} {summary.tokens_per_s:6.0f} tokens/s  {summary.tokens_a_step:5.2f} a step"
        line += f"  ITL {summary.itl_ms:6.1f} ms"
        if mode not in ("off", "control"):
            line += f"  {_shown(row['to_off'])}, control {_shown(_spread(matrix.ratios(case, 'control')))}"
        if mode == "on":
            line += f", regret to {row['best_fixed']} {row['regret']:.1%}"
        if mode in PREDICTING:
            line += f", to on {_shown(_spread(matrix.ratios(case, mode, 'on')))}"
        yield line


def _shown(spread: tuple[float, float, float] | None) -> str:
    return "not run" if spread is None else "{:.2f} ({:.2f} to {:.2f})".format(*spread)


def _never_below(matrix: Matrix) -> Iterator[Threshold]:
    """Thresholds: ``on`` is nowhere slower than plain decoding, within the spread of the control."""
    for case in matrix.cases if "on" in matrix.modes else ():
        least = min([1.0, *matrix.ratios(case, "control")])
        yield Threshold(f"on / off, {case}", matrix.ratio(case, "on"), round(least, 3))


def _never_far_below(matrix: Matrix) -> Iterator[Threshold]:
    """Thresholds: ``on`` is within the allowed regret of the best fixed mode, for mixed requests."""
    for case in (case for case in matrix.cases if case.workload == MIXED and "on" in matrix.modes):
        best = best_fixed(matrix, case)
        yield Threshold(f"on / the best fixed choice ({best}), {case}", matrix.ratio(case, "on", best), 1 - REGRET)
