"""Values of queries over time, from Prometheus (https://prometheus.io/docs/prometheus/latest/querying/api)."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import httpx
from outrider.loadtest.scaling.replicas import Sums
from outrider.loadtest.scaling.scalers import Scaler

_PATIENCE_S = 60.0


class Span(NamedTuple):
    """From a time to another one (Unix seconds), with a value every ``step_s`` seconds."""

    start: float
    end: float
    step_s: float


def samples(url: str, scaler: Scaler, span: Span) -> list[tuple[float, Sums]]:
    """The sums of all triggers at each time of ``span``; 0 where a query has no value, as for KEDA.

    Raises `ValueError` for a query that Prometheus refuses or that gives several series, and `httpx.TransportError` if
    it cannot be reached.
    """
    count = int((span.end - span.start) // span.step_s) + 1
    sums = [{each.name: 0.0 for each in scaler.triggers} for _ in range(count)]
    with httpx.Client(base_url=url, timeout=_PATIENCE_S) as http:
        for trigger in scaler.triggers:
            for at, value in _values(http, trigger.query, span):
                sums[round((at - span.start) / span.step_s)][trigger.name] = value
    return [(span.start + number * span.step_s, each) for number, each in enumerate(sums)]


def _values(http: httpx.Client, query: str, span: Span) -> list[tuple[float, float]]:
    parameters: dict[str, str | float] = {"query": query, "start": span.start, "end": span.end, "step": span.step_s}
    answer = http.get("/api/v1/query_range", params=parameters).json()
    if answer["status"] != "success":
        raise ValueError(f"Prometheus refused {query}: {answer['error']}")
    series = answer["data"]["result"]
    if len(series) > 1:
        raise ValueError(f"{query} gives {len(series)} series, and a trigger needs one")
    return [(at, float(text)) for each in series for at, text in each["values"] if isfinite(float(text))]
