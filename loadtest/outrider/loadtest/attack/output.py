"""Prints verdicts as lines, and writes them as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from outrider.loadtest.attack.verdict import Pace, Verdict
from outrider.measure.report.bench_report import machine


def line(verdict: Verdict) -> str:
    """One line for the verdict, one for the victims' figures, and one for each problem."""
    answers = ", ".join(f"{count} × {what}" for what, count in sorted(verdict.told.items())) or "nothing"
    head = f"{'pass' if verdict.passed else 'FAIL'}  {verdict.name}: {verdict.what} The attacker was told: {answers}."
    victims = f"{verdict.pace}; without an attack {verdict.undisturbed}; served again after {verdict.recovered_s:.1f} s"
    return "\n".join(
        [head, *(f"      {what}" for what in [victims, *verdict.wrong, *verdict.slow, *verdict.failures[:5]])]
    )


def write(path: Path, quiet: Pace, verdicts: Sequence[Verdict]) -> None:
    """Writes the machine, the undisturbed pace and the verdicts to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    attacks = [{"passed": verdict.passed, **msgspec.to_builtins(verdict)} for verdict in verdicts]
    content = {"machine": machine(), "undisturbed": quiet, "attacks": attacks}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    print(f"Written to {path}.")
