"""Prometheus metrics in Outrider's own registry; names end with their units (`_seconds`, `_bytes`, `_total`)."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def counter(name: str, description: str, labels: Sequence[str] = ()) -> Counter:
    """``outrider_<name>_total``; made once, when its module is imported."""
    return Counter(f"outrider_{name}", description, labels, registry=REGISTRY)


def gauge(name: str, description: str, labels: Sequence[str] = ()) -> Gauge:
    """``outrider_<name>``: a value that goes up and down."""
    return Gauge(f"outrider_{name}", description, labels, registry=REGISTRY)


def histogram(name: str, description: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> Histogram:
    """``outrider_<name>``: a distribution over ``buckets`` (upper bounds; seconds by default)."""
    return Histogram(f"outrider_{name}", description, labels, buckets=buckets, registry=REGISTRY)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
