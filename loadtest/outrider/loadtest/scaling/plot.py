"""Draws the pods that scalers ask for, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from outrider.loadtest.scaling.replicas import Moment


def save(moments: Mapping[str, list[Moment]], path: Path) -> None:
    """Writes a PNG with a panel for each scaler: the pods, and what each trigger asks for."""
    figure = Figure(figsize=(9, 3 * len(moments)), layout="constrained")
    panels = figure.subplots(len(moments), 1, squeeze=False)[:, 0]
    for panel, (name, course) in zip(panels, moments.items(), strict=True):
        _draw(panel, course)
        panel.set_title(name, fontsize=10)
    panels[-1].set_xlabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, course: list[Moment]) -> None:
    times = [moment.at - course[0].at for moment in course]
    for name in course[0].asked:
        axes.step(times, [moment.asked[name] for moment in course], where="post", label=f"{name} asks", linewidth=1)
    axes.step(times, [moment.pods for moment in course], where="post", label="pods", linewidth=2, color="black")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
