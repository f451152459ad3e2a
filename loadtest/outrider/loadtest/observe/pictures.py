"""Draws dashboards as pictures: each panel's own queries, over all that a Prometheus has scraped."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter
from outrider.loadtest.observe.answers import Answers, of_panel
from outrider.loadtest.observe.dashboards import Dashboard, Panel
from outrider.loadtest.observe.prometheus import STEP_S, Prometheus, Series
from PIL import Image

_COLUMNS = 3
_MOST_LEGENDS = 8
_COLORS = 64
_UNITS = {"short": "", "percentunit": "", "reqps": "requests/s", "Bps": "bytes/s"}
_FORMATTERS = {"percentunit": PercentFormatter(1, decimals=0), "bytes": EngFormatter(), "Bps": EngFormatter()}


async def draw(prometheus: Prometheus, dashboards: dict[str, Dashboard], folder: Path) -> None:
    """Writes ``<name>.png`` of each dashboard into a folder; panels that need what the mesh has not are left out."""
    for name, dashboard in dashboards.items():
        panels = [panel for panel in dashboard.panels if not panel.needs]
        shown = [(panel, await of_panel(prometheus, panel)) for panel in panels]
        _save(_figure(dashboard.title, shown, prometheus.began), folder / f"{name}.png")


def _save(figure: Figure, path: Path) -> None:
    """Writes a picture of few colours, which takes a third of the bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=70)
    Image.open(drawn).convert("RGB").quantize(_COLORS).save(path, optimize=True)


def _figure(title: str, shown: list[tuple[Panel, Answers]], began: float) -> Figure:
    lines = -(-len(shown) // _COLUMNS)
    figure = Figure(figsize=(15, 2.6 * lines), layout="constrained")
    figure.suptitle(f"{title} (minutes from the start)")
    places = figure.subplots(lines, _COLUMNS, squeeze=False, sharex=True).flatten()
    for axes, (panel, answers) in zip(places, shown, strict=False):
        _panel(axes, panel, answers, began)
    for axes in places[len(shown) :]:
        axes.set_axis_off()
    return figure


def _panel(axes: Axes, panel: Panel, answers: Answers, began: float) -> None:
    for legend, series in answers.items():
        for each in series:
            axes.plot(*_points(each, began), label=_label(legend, each.metric))
    unit = _UNITS.get(panel.unit, panel.unit.removeprefix("suffix: "))
    axes.set_title(f"{panel.title}, {unit}".removesuffix(", "), fontsize=9, loc="left")
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7, labelbottom=True)
    axes.spines[["top", "right"]].set_visible(False)
    if formatter := _FORMATTERS.get(panel.unit):
        axes.yaxis.set_major_formatter(formatter)
    if any(legend for legend in answers) and 0 < len(axes.lines) <= _MOST_LEGENDS:
        axes.legend(fontsize=7, frameon=False, loc="best")


def _points(series: Series, began: float) -> tuple[list[float], list[float]]:
    """Minutes and values; a value that is no number breaks the line where there are none."""
    minutes, values, last = list[float](), list[float](), math.inf
    for at, value in series.values:
        if at - last > STEP_S:
            minutes.append((last - began) / 60)
            values.append(math.nan)
        minutes.append((at - began) / 60)
        values.append(float(value))
        last = at
    return minutes, values


def _label(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)
