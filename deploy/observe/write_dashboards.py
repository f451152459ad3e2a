"""Writes dashboards as Grafana's JSON: `python -m deploy.observe.write_dashboards`.

Their descriptions are `deploy/observe/dashboards/*.toml`; the JSON is described at
https://grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/view-dashboard-json-model/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

FOLDER = Path(__file__).parent
"""Folder of all that watches a mesh, in a source checkout."""
WRITTEN = FOLDER / "grafana" / "dashboards"
"""Folder of the JSON files."""
_COLUMNS, _WIDTH = 24, {"timeseries": 8, "stat": 6}
_HEIGHT = {"timeseries": 8, "stat": 4}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
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


def write() -> None:
    """Writes the JSON of all dashboards."""
    WRITTEN.mkdir(parents=True, exist_ok=True)
    for path, content in files().items():
        path.write_bytes(content)


def files() -> dict[Path, bytes]:
    """The content of each JSON file."""
    return {WRITTEN / f"{name}.json": _encode(name, dashboard) for name, dashboard in read().items()}


def _encode(name: str, dashboard: Dashboard) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_dashboard(name, dashboard)), indent=1) + b"\n"


def _dashboard(name: str, dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"outrider-{name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["outrider"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["outrider"], "title": "Outrider", "keepTime": True}],
        "templating": {"list": [_SOURCE_VARIABLE, _MODEL_VARIABLE]},
        "panels": [panel | {"id": number} for number, panel in enumerate(_panels(dashboard), 1)],
    }


_SOURCE_VARIABLE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
_MODEL_VARIABLE = {
    "name": "model",
    "label": "Model",
    "type": "query",
    "datasource": _SOURCE,
    "query": "label_values(outrider_verifier_running_requests, model)",
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
    "refresh": 2,
}


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Headings and panels from left to right, line by line; the panels of a row have one height."""
    y = 0
    for row in dashboard.rows:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": place}
        y, width, height = y + 1, _WIDTH[row.panels[0].kind], _HEIGHT[row.panels[0].kind]
        in_line = _COLUMNS // width
        for number, panel in enumerate(row.panels):
            place = {"x": number % in_line * width, "y": y + number // in_line * height, "w": width, "h": height}
            yield _panel(panel) | {"gridPos": place}
        y += -(-len(row.panels) // in_line) * height


def _panel(panel: Panel) -> dict[str, Any]:
    needs = f" Needs {panel.needs}." if panel.needs else ""
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description + needs,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": _style(panel)}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for number, (legend, expression) in enumerate(panel.expressions.items())
        ],
    }


def _style(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {}
    return {"fillOpacity": 10, "stacking": {"mode": "normal" if panel.stack else "none"}}


if __name__ == "__main__":
    write()
