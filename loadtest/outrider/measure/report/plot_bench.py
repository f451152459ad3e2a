"""Draws the report of `outrider bench` as a picture."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.measure.load.summary import Summary
from outrider.measure.report.bench_report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: list[tuple[str, Callable[[Summary], float]]] = [
    ("tokens a second, all requests together", lambda summary: summary.tokens_per_s),
    ("time to the first token, ms (p50)", lambda summary: summary.ttft_ms),
    ("time a token after it, ms (p50)", lambda summary: summary.itl_ms),
]


def save(report: Report, path: Path) -> bool:
    """Writes a PNG: throughput and latencies of each load, with a bar for each mode; False without matplotlib."""
    if util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    for panel, (title, value) in zip(axes, PANELS, strict=True):
        _draw(panel, report, value)
        panel.set_title(title, fontsize=10)
    axes[0].legend(title="speculation", fontsize=8)
    figure.suptitle(_caption(report), fontsize=9)
    figure.savefig(path, dpi=150)
    return True


def _draw(axes: Axes, report: Report, value: Callable[[Summary], float]) -> None:
    loads = list(dict.fromkeys(median.load for median in report.medians))
    modes = list(dict.fromkeys(median.mode for median in report.medians))
    width = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        figures = {median.load: value(median.summary) for median in report.medians if median.mode == mode}
        places = [place + (index - (len(modes) - 1) / 2) * width for place in range(len(loads))]
        bars = axes.bar(places, [figures[load] for load in loads], width, label=mode)
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(loads)), loads)
    axes.spines[["top", "right"]].set_visible(False)


def _caption(report: Report) -> str:
    machine, settings = report.machine, report.settings
    return (
        f"{machine['outrider']} · {settings['model']} · temperature {settings['temperature']:g} · "
        f"{machine['cpu']}, {machine['cores']}"
    )
