"""Prometheus metrics in Outrider's own registry; names end with their units (`_seconds`, `_bytes`, `_total`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from outrider.mesh.telemetry.distributions import Distributions
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()
ProcessCollector(namespace="outrider", registry=REGISTRY)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
"""Bounds for the time of one token."""


class Described(NamedTuple):
    """A metric as `docs/metrics.md` describes it: its full name, type, labels and meaning."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str


DESCRIBED: list[Described] = []
"""All metrics of the modules that are imported."""
_collectors: dict[str, Collector] = {}


def counter(name: str, description: str, labels: Sequence[str] = ()) -> Counter:
    """``outrider_<name>_total``; made once, when its module is imported."""
    made = Counter(f"outrider_{name}", description, labels, registry=REGISTRY)
    _note(made, Described(f"outrider_{name}_total", "counter", tuple(labels), description), name)
    return made


def gauge(name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
    """``outrider_<name>``: a value that goes up and down."""
    made = Gauge(f"outrider_{name}", description, labels, registry=REGISTRY)
    _note(made, Described(f"outrider_{name}", "gauge", tuple(labels), description), name)
    return made


def histogram(name: str, description: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> Histogram:
    """``outrider_<name>``: a distribution over ``buckets`` (upper bounds; seconds by default)."""
    made = Histogram(f"outrider_{name}", description, labels, buckets=buckets, registry=REGISTRY)
    _note(made, Described(f"outrider_{name}", "histogram", tuple(labels), description), name)
    return made


def distributions(
    name: str, description: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
) -> Distributions:
    """As `histogram`, for values that come for every token or every step."""
    made = Distributions(f"outrider_{name}", description, labels, buckets)
    REGISTRY.register(made)
    _note(made, Described(f"outrider_{name}", "histogram", tuple(labels), description), name)
    return made


def families(name: str) -> Iterable[Metric]:
    """The present values of the metric that was made with ``name``; nothing where this process has no such metric."""
    made = _collectors.get(name)
    return () if made is None else made.collect()


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


def _note(made: Collector, described: Described, name: str) -> None:
    _collectors[name] = made
    DESCRIBED.append(described)
