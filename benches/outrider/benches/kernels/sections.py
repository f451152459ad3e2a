"""Measurements or predictions as a table, as JSON and as a plot of bars."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outrider.benches.kernels import goals
from outrider.benches.kernels.cases import Case
from outrider.benches.kernels.cpu import CpuTiming
from outrider.benches.kernels.gpu import Ceiling, Timing
from outrider.benches.kernels.roofline import Device, predict
from rich.table import Table

Cell = str | float


@dataclass
class Section:
    """A table of figures.

    Attributes:
        name: of its files.
        title: above it.
        axis: label of the bars' lengths.
        line: length at which a line crosses the bars; None for no line.
        facts: further entries of the JSON.
        rows: values by column.
        labels: of the bars.
        series: of the bars, by name.
    """

    name: str
    title: str
    axis: str
    line: float | None = None
    facts: dict[str, object] = field(default_factory=dict)
    rows: list[dict[str, Cell]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: dict[str, Cell], label: str, lengths: dict[str, float]) -> None:
        """Adds a row and its bars."""
        self.rows.append(row)
        self.labels.append(label)
        for name, length in lengths.items():
            self.series.setdefault(name, []).append(length)

    def table(self) -> Table:
        """The table for a terminal."""
        table = Table(title=self.title)
        for column, cell in self.rows[0].items():
            table.add_column(column, justify="left" if isinstance(cell, str) else "right")
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row.values()))
        return table

    def save(self, folder: Path) -> None:
        """Writes ``name.json`` and ``name.png``."""
        from outrider.benches.kernels import plot

        folder.mkdir(parents=True, exist_ok=True)
        written = {"title": self.title, **self.facts, "rows": self.rows}
        (folder / f"{self.name}.json").write_text(json.dumps(written, indent=1) + "\n")
        plot.bars(folder / f"{self.name}.png", self.title, self.axis, self.labels, self.series, self.line)


def predicted(cases: Iterable[Case], name: str, device: Device) -> Section:
    """The least times on a device, present or not."""
    title = f"Least times on {device.name}: {device.bandwidth / 1e12:g} TB/s ({device.source})"
    section = Section(f"roofline-{name}", title, "least time, µs", facts={"source": device.source})
    for case in cases:
        if case.work.factors not in device.flops:
            continue
        least = predict(case, device)
        figures: dict[str, Cell] = {
            "MB": case.work.moved / 1e6,
            "GFLOP": case.work.flops / 1e9,
            "bound by": least.bound,
            "least µs": least.seconds * 1e6,
        }
        section.add(_head(case) | figures, _label(case), {"least": least.seconds * 1e6})
    return section


def measured(timings: Iterable[Timing], gpu: str, most: Ceiling) -> Section:
    """Times on the GPU at hand, as shares of its measured ceiling."""
    rates = ", ".join(f"{str(dtype)[6:]} {rate / 1e12:.0f} TFLOP/s" for dtype, rate in most.flops.items())
    title = f"Kernels on {gpu}: copies {most.bandwidth / 1e12:.2f} TB/s, matmuls in {rates}"
    timings = list(timings)
    facts = {"copy_bytes_a_second": most.bandwidth, "bars": [asdict(goal) for goal in goals.goals(timings, most)]}
    section = Section("gpu", title, "share of the ceiling", 1.0, facts)
    for timing in timings:
        theirs = timing.of_ceiling * timing.seconds / timing.torch_seconds
        figures: dict[str, Cell] = {
            "µs": timing.seconds * 1e6,
            "GB/s": timing.bandwidth / 1e9,
            "TFLOP/s": timing.flops / 1e12,
            "of ceiling": timing.of_ceiling,
            "torch µs": timing.torch_seconds * 1e6,
            "times torch": timing.torch_seconds / timing.seconds,
        }
        bars = {"outrider": timing.of_ceiling, "torch": theirs}
        section.add(_head(timing.case) | figures, _label(timing.case), bars)
    return section


def on_cpu(timings: Iterable[CpuTiming], title: str) -> Section:
    """Times on this CPU, and torch's."""
    section = Section("cpu", title, "times as quick as torch", 1.0)
    for timing in timings:
        row: dict[str, Cell] = {
            "op": timing.op,
            "rows": timing.rows,
            "µs": timing.seconds * 1e6,
            "torch µs": timing.torch_seconds * 1e6,
            "times torch": timing.ratio,
        }
        section.add(row, f"{timing.op}, {timing.rows} rows", {"ratio": timing.ratio})
    return section


def _head(case: Case) -> dict[str, Cell]:
    return {"shape": case.shape.name, "op": case.name, "step": case.step.name, "rows": case.step.rows}


def _label(case: Case) -> str:
    return f"{case.shape.name} {case.name} {case.step.name}"
