"""Bars that a load test has to meet, and the JSON file of its results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from outrider.measure.report.bench_report import machine


class Bar(msgspec.Struct, frozen=True):
    """A figure and its least allowed value; NaN misses the bar."""

    what: str
    value: float
    least: float

    @property
    def met(self) -> bool:
        """Whether the figure reaches its least value."""
        return self.value >= self.least

    def __str__(self) -> str:
        """One line for the terminal."""
        shown = "not measured" if math.isnan(self.value) else f"{self.value:.2f}"
        return f"{'met   ' if self.met else 'missed'}  {self.what}: {shown} (at least {self.least:g})"


def publish(path: Path | None, bars: Iterable[Bar], **content: Any) -> None:
    """Prints the bars; writes bars, ``content`` and the machine to ``path`` as JSON, if a path is given.

    Paths of this machine are left out of ``content``.
    """
    shown = list(bars)
    for bar in shown:
        print(bar, flush=True)
    if path:
        judged = [{**msgspec.structs.asdict(bar), "met": bar.met} for bar in shown]
        path.parent.mkdir(parents=True, exist_ok=True)
        portable = {key: _portable(value) for key, value in content.items()}
        encoded = msgspec.json.encode({"machine": machine(), "bars": judged, **portable}, enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
        print(f"Written to {path}.")


def _portable(value: Any) -> Any:
    return (
        {key: item for key, item in value.items() if not isinstance(item, Path)} if isinstance(value, dict) else value
    )
