"""Plots of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

_INCHES_A_BAR = 0.22


def bars(
    path: Path, title: str, axis: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], line: float | None
) -> None:
    """Writes a PNG of horizontal bars: a group per label, a colour per series.

    Args:
        path: to write to.
        title: above the bars.
        axis: label of the bars' lengths.
        labels: of the groups, from the top.
        series: by name, a length per label.
        line: length at which a line crosses all bars; None for no line.
    """
    figure = Figure(figsize=(9, 1.2 + _INCHES_A_BAR * len(labels) * (len(series) + 0.3)), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(series)
    for index, (name, lengths) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * width for place in range(len(labels))]
        drawn = axes.barh(places, lengths, width, label=name)
        axes.bar_label(drawn, fmt="%.3g", fontsize=7, padding=2)
    if line is not None:
        axes.axvline(line, color="black", linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlabel(axis)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axes.legend(fontsize=8)
    axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=150)
