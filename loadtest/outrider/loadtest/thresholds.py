"""Thresholds that a load test has to meet, and the JSON file of its results."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from outrider.measure.report.bench_report import machine


class Threshold(msgspec.Struct, frozen=True):
    """A figure and its least allowed value; NaN misses the threshold."""

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


def publish(path: Path | None, thresholds: Iterable[Threshold], **content: Any) -> None:
    """Prints the thresholds; writes thresholds, ``content`` and the machine to ``path`` as JSON, if a path is given.

    Paths of this machine are left out of ``content``.
    """
    shown = list(thresholds)
    for threshold in shown:
        print(threshold, flush=True)
    if path:
        judged = [{**msgspec.structs.asdict(threshold), "met": threshold.met} for threshold in shown]
        path.parent.mkdir(parents=True, exist_ok=True)
        portable = {key: _portable(value) for key, value in content.items()}
        encoded = msgspec.json.encode({"machine": machine(), "thresholds": judged, **portable}, enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
        print(f"Written to {path}.")


def _portable(value: Any) -> Any:
    return (
        {key: item for key, item in value.items() if not isinstance(item, Path)} if isinstance(value, dict) else value
    )
