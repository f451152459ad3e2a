"""Descriptions of dashboards: `deploy/observe/dashboards/*.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

FOLDER = Path(__file__).parents[4] / "deploy" / "observe"
"""Folder of all that watches a mesh, in a source checkout."""
_QUANTILES = {"50 %": 0.5, "95 %": 0.95, "99 %": 0.99}


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chart, or one number (``stat``).

    Attributes:
        unit: one of Grafana's units; ``suffix: x`` is any other.
        queries: PromQL by legend; ``{{label}}`` stands for a label's value. In a query, ``$model`` is the chosen model
            and ``$__rate_interval`` the shortest range that holds two scrapes.
        histogram: a histogram whose quantiles the panel shows, in place of ``queries``.
        needs: what a mesh has to have for the panel to show anything; empty if any mesh has it.
        stack: whether the series are shown as a sum.
    """

    title: str
    description: str
    queries: dict[str, str] = {}
    histogram: str = ""
    unit: str = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    needs: str = ""
    stack: bool = False

    def __post_init__(self) -> None:
        if bool(self.queries) == bool(self.histogram):
            raise ValueError(f"the panel {self.title!r} has to have either queries or a histogram")

    @property
    def expressions(self) -> dict[str, str]:
        """PromQL by legend."""
        return self.queries or {legend: _quantile(self.histogram, share) for legend, share in _QUANTILES.items()}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Panels below one heading."""

    title: str
    panels: list[Panel]


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One dashboard."""

    title: str
    description: str
    rows: list[Row]

    @property
    def panels(self) -> list[Panel]:
        """The panels of all rows."""
        return [panel for row in self.rows for panel in row.panels]


def read() -> dict[str, Dashboard]:
    """All dashboards by the names of their files.

    Raises:
        msgspec.ValidationError: a description is malformed.
    """
    paths = sorted((FOLDER / "dashboards").glob("*.toml"))
    return {path.stem: msgspec.toml.decode(path.read_bytes(), type=Dashboard) for path in paths}


def _quantile(histogram: str, share: float) -> str:
    return f'histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{model=~"$model"}}[$__rate_interval])))'
