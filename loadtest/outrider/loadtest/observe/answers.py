"""Which queries of dashboards, and which metrics of rules, answer nothing."""

from __future__ import annotations

import math
import re

from outrider.loadtest.observe.dashboards import Dashboard, Panel
from outrider.loadtest.observe.prometheus import Prometheus, Series

_VARIABLES = {"$model": ".*", "$__rate_interval": "40s"}
"""What Grafana puts in place of variables: all models, and four scrapes."""
_SELECTOR = re.compile(r"\boutrider[_:][\w:]+(?:\{[^}]*\})?")

Answers = dict[str, list[Series]]
"""Series of a panel by the legend of their query."""


async def of_panel(prometheus: Prometheus, panel: Panel) -> Answers:
    """What Grafana would show in a panel, from the start of Prometheus until now."""
    return {legend: await prometheus.series(_filled(query)) for legend, query in panel.expressions.items()}


async def silent_queries(prometheus: Prometheus, dashboards: dict[str, Dashboard]) -> list[str]:
    """Queries without a number at any time, each as dashboard, panel and legend."""
    return [
        f"{name}: {panel.title}: {legend or 'its query'}" + (f" (needs {panel.needs})" if panel.needs else "")
        for name, dashboard in dashboards.items()
        for panel in dashboard.panels
        for legend, series in (await of_panel(prometheus, panel)).items()
        if not _has_numbers(series)
    ]


async def silent_rules(prometheus: Prometheus) -> list[str]:
    """Series that rules read and that were never there, each behind the name of its rule."""
    return [
        f"{rule}: {selector}"
        for rule, expression in (await prometheus.rules()).items()
        for selector in dict.fromkeys(_SELECTOR.findall(expression))
        if not _has_numbers(await prometheus.series(selector))
    ]


def _filled(query: str) -> str:
    for variable, value in _VARIABLES.items():
        query = query.replace(variable, value)
    return query


def _has_numbers(series: list[Series]) -> bool:
    return any(not math.isnan(float(value)) for each in series for _, value in each.values)
