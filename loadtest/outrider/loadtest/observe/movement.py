"""Which metrics of `docs/metrics.md` are shown, and which of them a load moved."""

from __future__ import annotations

from outrider.loadtest.observe.prometheus import Prometheus
from outrider.mesh.telemetry.metrics import Described
from outrider.mesh.telemetry.metrics_table import by_service


async def of_all(prometheus: Prometheus) -> tuple[list[str], list[str]]:
    """Names of metrics that no process shows, and of those that are shown and had one value all the time."""
    shown = await prometheus.names()
    unseen, still = [], []
    for metric in (each for metrics in by_service().values() for each in metrics):
        if metric.name not in shown:
            unseen.append(metric.name)
        elif not await _moved(prometheus, metric):
            still.append(metric.name)
    return unseen, still


async def _moved(prometheus: Prometheus, metric: Described) -> bool:
    """Whether a series had two values. A counter with a label comes into being when it first counts."""
    name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
    values = [{float(value) for _, value in series.values} for series in await prometheus.series(name)]
    return any(len(each) > 1 or (metric.kind != "gauge" and each != {0.0}) for each in values)
