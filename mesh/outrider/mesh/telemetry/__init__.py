"""Logs, metrics, traces and time lines, the same in every service."""

from outrider.mesh.telemetry.logs import configure_logs, get_logger
from outrider.mesh.telemetry.metrics import REGISTRY, counter, gauge, histogram, render
from outrider.mesh.telemetry.timeline import start_timeline, timeline
from outrider.mesh.telemetry.tracing import (
    Telemetry,
    continued_span,
    current_headers,
    span,
    start_tracing,
    tracing,
)

__all__ = [
    "REGISTRY",
    "Telemetry",
    "configure_logs",
    "continued_span",
    "counter",
    "current_headers",
    "gauge",
    "get_logger",
    "histogram",
    "render",
    "span",
    "start_timeline",
    "start_tracing",
    "timeline",
    "tracing",
]
