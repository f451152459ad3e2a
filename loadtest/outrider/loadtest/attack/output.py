"""Prints verdicts as lines and a table, and writes them as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from outrider.loadtest.attack.verdict import OUTCOMES, Pace, Verdict
from outrider.measure.report.bench_report import machine
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDTH = 140
_HEADS = ("attack", "verdict", "s", "streams", *OUTCOMES, "refused", "ITL 50 %\nms", "99 %\nms", "stall\ns",
          "at most\ns", "back\ns", "died", "MiB\nmore")  # fmt: skip


def line(verdict: Verdict) -> str:
    """One line for the verdict, and one for each problem."""
    answers = ", ".join(f"{count} × {what}" for what, count in sorted(verdict.told.items())) or "nothing"
    head = f"{'pass' if verdict.passed else 'FAIL'}  {verdict.name}: {verdict.what} The attacker was told: {answers}."
    return "\n".join([head, *(f"      {what}" for what in [*verdict.wrong, *verdict.slow, *verdict.failures[:5]])])


def table(quiet: Pace, verdicts: Sequence[Verdict]) -> None:
    """Prints a table of verdicts, after the undisturbed figures."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in _HEADS:
        shown.add_column(head, justify="left" if head in ("attack", "verdict", "died") else "right")
    shown.add_row("(none)", "", "", str(quiet.streams), "", "", "", "", *_pace(quiet), "", "", "", "")
    for verdict in verdicts:
        died = ", ".join(f"{count} {kind}" for kind, count in verdict.processes.died.items())
        counts = [str(verdict.outcomes.get(outcome, 0)) for outcome in OUTCOMES]
        grown = f"{max(verdict.processes.grew_mib.values()):.0f}"
        bounds = f"{verdict.stall_bound_s:.0f}", f"{verdict.recovered_s:.1f}"
        shown.add_row(escape(verdict.name), "pass" if verdict.passed else "FAIL", f"{verdict.seconds:.0f}",
                      str(verdict.pace.streams), *counts, str(verdict.refused), *_pace(verdict.pace), *bounds, died,
                      grown)  # fmt: skip
    Console(width=_WIDTH).print(shown)


def _pace(pace: Pace) -> tuple[str, str, str]:
    return f"{pace.p50_s * 1e3:.1f}", f"{pace.p99_s * 1e3:.0f}", f"{pace.stall_s:.1f}"


def write(path: Path, quiet: Pace, verdicts: Sequence[Verdict]) -> None:
    """Writes the machine, the undisturbed pace and the verdicts to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    attacks = [{"passed": verdict.passed, **msgspec.to_builtins(verdict)} for verdict in verdicts]
    content = {"machine": machine(), "undisturbed": quiet, "attacks": attacks}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    print(f"Written to {path}.")
