"""The result of a ramp: everything measured, as JSON, as a table, and in words."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from outrider.measure.ramp.figures import NAMES, Figure, Slo, figures
from outrider.measure.ramp.level import Level
from outrider.measure.ramp.search import saturation
from rich.table import Table

FORMAT = "outrider.ramp.v1"
SHOWN = ("ended_per_s", "goodput_per_s", "tokens_per_s", "first_p50_s", "first_p95_s", "token_p50_s", "token_p95_s")


class ResultError(ValueError):
    """A file is no result; the message is one sentence for the user."""


class Result(msgspec.Struct, frozen=True):
    """Machine, settings, the stated SLO, and all levels."""

    format: str
    machine: dict[str, str]
    settings: dict[str, Any]
    slo: Slo
    levels: list[Level]

    @property
    def rates(self) -> dict[float, list[Level]]:
        """The levels of each rate, from the lowest to the highest."""
        found: dict[float, list[Level]] = {}
        for level in sorted(self.levels, key=lambda level: (level.rate, level.repeat)):
            found.setdefault(level.rate, []).append(level)
        return found

    @property
    def figures(self) -> dict[float, dict[str, Figure]]:
        """The figures of each rate."""
        return {rate: figures(levels, self.slo) for rate, levels in self.rates.items()}

    @property
    def errors(self) -> Counter[str]:
        """Reasons of requests without an answer."""
        return sum((level.errors for level in self.levels), Counter())

    @property
    def answered(self) -> bool:
        """Whether any request was answered, in the measured time or behind it."""
        return any(not request.error for level in self.levels for request in level.requests)

    def save(self, path: Path) -> None:
        """Writes the result as JSON."""
        path.write_bytes(msgspec.json.encode(self) + b"\n")


def read(path: Path) -> Result:
    """The result in a file.

    Raises:
        ResultError: there is none.
    """
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError) as error:
        raise ResultError(f"cannot read a result from {path}: {error}") from error
    if result.format != FORMAT:
        raise ResultError(f"{path} has the format {result.format!r}, not {FORMAT!r}")
    return result


def summary(result: Result, found: dict[float, dict[str, Figure]]) -> list[str]:
    """Where the mesh saturates, the best goodput, and how many requests had no answer."""
    kept, missed = saturation(result.levels)
    lines = [
        f"The mesh keeps up with {kept:.3g} requests/s" if kept else "The mesh keeps up with no rate that was tried"
    ]
    lines[0] += f", and not with {missed:.3g}." if missed < math.inf else "; no higher rate was tried."
    best = max(found, key=lambda rate: found[rate]["goodput_per_s"].value)
    lines.append(
        f"Most requests in time (first token {result.slo.first_s:g} s, each further one {result.slo.token_s:g} s): "
        f"{found[best]['goodput_per_s']} a second, at {best:.3g} requests/s."
    )
    return lines + [f"{count} requests had no answer: {error}" for error, count in result.errors.most_common(5)]


def table(found: dict[float, dict[str, Figure]]) -> Table:
    """A line for each rate. The page has the intervals."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("rate/s", justify="right", vertical="bottom")
    titles = {name: title for title, name in NAMES.items()}
    for name in SHOWN:
        shown.add_column(titles[name].replace(" ", "\n", 1), justify="right", no_wrap=True)
    for rate, row in found.items():
        shown.add_row(f"{rate:.3g}", *(f"{row[name].value:.3g}" for name in SHOWN))
    return shown
