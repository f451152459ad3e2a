"""What a load test set out to show, whether it did, and the file that says so."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from outrider.loadtest.report.report import machine


class Bar(msgspec.Struct, frozen=True):
    """A figure and the least that it should be; not a number is a bar missed."""

    what: str
    value: float
    least: float

    @property
    def met(self) -> bool:
        """Whether the figure is as high as it should be."""
        return self.value >= self.least

    def __str__(self) -> str:
        """One line."""
        shown = "not measured" if math.isnan(self.value) else f"{self.value:.2f}"
        return f"{'met   ' if self.met else 'missed'}  {self.what}: {shown} (at least {self.least:g})"


def publish(path: Path | None, bars: Iterable[Bar], **content: Any) -> None:
    """Prints the bars, and writes them with ``content`` and the machine to ``path`` as JSON, if that is given.

    Where things are on this machine is left out of ``content``.
    """
    shown = list(bars)
    for bar in shown:
        print(bar, flush=True)
    if path:
        told = [{**msgspec.structs.asdict(bar), "met": bar.met} for bar in shown]
        path.parent.mkdir(parents=True, exist_ok=True)
        told_of = {key: _portable(value) for key, value in content.items()}
        encoded = msgspec.json.encode({"machine": machine(), "bars": told, **told_of}, enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded, indent=2) + b"\n")
        print(f"Written to {path}.")


def _portable(value: Any) -> Any:
    return (
        {key: each for key, each in value.items() if not isinstance(each, Path)} if isinstance(value, dict) else value
    )
