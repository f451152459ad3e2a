"""A load test's report as a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from outrider.loadtest.load.summary import Summary
from outrider.loadtest.report.report import Report

PANELS: list[tuple[str, Callable[[Summary], float]]] = [
    ("tokens a second, all requests together", lambda summary: summary.tokens_per_s),
    ("time to the first token, ms (p50)", lambda summary: summary.ttft_ms),
    ("time a token after it, ms (p50)", lambda summary: summary.itl_ms),
]


def save(report: Report, path: Path) -> None:
    """Writes a PNG: throughput and latencies of each load, a bar a mode."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    for panel, (title, value) in zip(axes, PANELS, strict=True):
        _draw(panel, report, value)
        panel.set_title(title, fontsize=10)
    axes[0].legend(title="speculation", fontsize=8)
    figure.suptitle(_caption(report), fontsize=9)
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, report: Report, value: Callable[[Summary], float]) -> None:
    loads = list(dict.fromkeys(each.load for each in report.medians))
    modes = list(dict.fromkeys(each.mode for each in report.medians))
    width = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        found = {each.load: value(each.summary) for each in report.medians if each.mode == mode}
        places = [place + (index - (len(modes) - 1) / 2) * width for place in range(len(loads))]
        bars = axes.bar(places, [found[load] for load in loads], width, label=mode)
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set_xticks(range(len(loads)), loads)
    axes.spines[["top", "right"]].set_visible(False)


def _caption(report: Report) -> str:
    machine, settings = report.machine, report.settings
    return (
        f"{machine['outrider']} · {settings['model']} · temperature {settings['temperature']:g} · "
        f"{machine['cpu']}, {machine['cores']}"
    )
