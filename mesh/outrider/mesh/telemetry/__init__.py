"""Logs, metrics, traces, time lines and the audit log, the same in every service."""

from outrider.mesh.telemetry.audit import audit, start_audit, stop_audit
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
    "audit",
    "configure_logs",
    "continued_span",
    "counter",
    "current_headers",
    "gauge",
    "get_logger",
    "histogram",
    "render",
    "span",
    "start_audit",
    "start_timeline",
    "start_tracing",
    "stop_audit",
    "timeline",
    "tracing",
]
