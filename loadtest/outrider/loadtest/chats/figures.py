"""Figures of chat requests: ratios and their control, tokens a step, regret, and each kind mixed and alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.loadtest.chats.chat_turns import ChatTurn, Steps, steps_by_kind
from outrider.loadtest.chats.fresh_meshes import AFTER, FRESH
from outrider.loadtest.chats.supply import MIXED
from outrider.loadtest.load.turns import Case, Matrix
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar

KEPT = 0.95
"""Least ratio of tokens a step, of a kind in the mix to the kind alone, and of edits after stories to fresh edits."""
REGRET = 0.03
"""Largest allowed loss of ``on`` against the best fixed mode in hindsight, for mixed requests."""
_NOT_FIXED = ("control", "on")

Alone = Mapping[str, Sequence[ChatTurn]]


def publish(turns: Sequence[ChatTurn], alone: Alone, settings: Mapping[str, Any], out: Path) -> None:
    """Prints tables and bars; writes ``matrix.json`` into ``out``.

    Args:
        turns: all turns.
        alone: turns of the mixed requests by kind, each kind alone in a fresh mesh.
        settings: options of the measurement.
        out: a directory.
    """
    matrix = Matrix(turns)
    figures = [figure(matrix, case, mode) for case in matrix.cases for mode in matrix.modes]
    mixes = list(_mixes(turns, alone))
    print("\n".join([*_lines(matrix, figures), *map(_mix_line, mixes)]))
    judged = [*_never_below(matrix), *_judge_mixes(matrix, mixes)]
    content = {"settings": dict(settings), "figures": figures, "mixed": mixes, "turns": turns, "alone": alone}
    bars.publish(out / "matrix.json", judged, **content)


def publish_stories(turns_by_mesh: Mapping[str, Sequence[ChatTurn]], settings: Mapping[str, Any], out: Path) -> None:
    """Prints tokens a step of edits after stories and in a fresh mesh; writes ``stories.json`` into ``out``."""
    judged = []
    for case in dict.fromkeys(turn.case for turn in turns_by_mesh[FRESH]):
        after_stories, in_fresh_mesh = (_of_case(turns_by_mesh[name], case).a_step for name in (AFTER, FRESH))
        print(f"{case}: {after_stories:.2f} tokens a step {AFTER}, {in_fresh_mesh:.2f} {FRESH}")
        judged.append(Bar(f"{case}: tokens a step {AFTER} / {FRESH}", after_stories / in_fresh_mesh, KEPT))
    bars.publish(out / "stories.json", judged, settings=dict(settings), turns=turns_by_mesh)


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
        yield line


def _shown(spread: tuple[float, float, float] | None) -> str:
    return "not run" if spread is None else "{:.2f} ({:.2f} to {:.2f})".format(*spread)


def _mixes(turns: Sequence[ChatTurn], alone: Alone) -> Iterator[dict[str, Any]]:
    """Tokens a step of each kind in the mix and alone, for the same requests."""
    together = [turn for turn in turns if turn.mode == "on" and turn.case.workload == MIXED]
    for case in dict.fromkeys(turn.case for turn in together):
        mixed = steps_by_kind(turn for turn in together if turn.case == case)
        for kind, kind_turns in alone.items():
            yield {"case": case, "kind": kind, "mixed": mixed[kind].a_step, "alone": _of_case(kind_turns, case).a_step}


def _of_case(turns: Sequence[ChatTurn], case: Case) -> Steps:
    return sum(steps_by_kind(turn for turn in turns if turn.case == case).values(), Steps())


def _mix_line(mix: Mapping[str, Any]) -> str:
    return f"{mix['case']!s:28} {mix['kind']:8} {mix['mixed']:.2f} tokens a step in the mix, {mix['alone']:.2f} alone"


def _never_below(matrix: Matrix) -> Iterator[Bar]:
    """Bars: ``on`` is nowhere slower than plain decoding, within the spread of the control."""
    for case in matrix.cases if "on" in matrix.modes else ():
        least = min([1.0, *matrix.ratios(case, "control")])
        yield Bar(f"on / off, {case}", matrix.ratio(case, "on"), round(least, 3))


def _judge_mixes(matrix: Matrix, mixes: Sequence[Mapping[str, Any]]) -> Iterator[Bar]:
    for mix in mixes:
        yield Bar(f"{mix['kind']} in the mix / alone, {mix['case']}", mix["mixed"] / mix["alone"], KEPT)
    for case in (case for case in matrix.cases if case.workload == MIXED and "on" in matrix.modes):
        best = best_fixed(matrix, case)
        yield Bar(f"on / the best fixed choice ({best}), {case}", matrix.ratio(case, "on", best), 1 - REGRET)
