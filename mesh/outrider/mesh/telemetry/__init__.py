"""Logs, metrics, traces, time lines, the audit log and the usage log, the same in every service."""

from outrider.mesh.telemetry.audit import audit, start_audit, stop_audit
from outrider.mesh.telemetry.distributions import Distribution
from outrider.mesh.telemetry.logs import configure_logs, get_logger
from outrider.mesh.telemetry.metrics import REGISTRY, counter, distributions, gauge, histogram, render
from outrider.mesh.telemetry.timeline import start_timeline, timeline
from outrider.mesh.telemetry.tracing import (
    TRACEPARENT,
    Telemetry,
    begun_span,
    continued_span,
    current_headers,
    kept_span,
    mark_failed,
    span,
    span_named_by,
    start_tracing,
    traceparent,
    tracing,
)
from outrider.mesh.telemetry.usage_log import UsageRecord, keeps_usage, note_usage, start_usage_log, stop_usage_log
from outrider.mesh.telemetry.vllm_names import use_vllm_names

__all__ = [
    "REGISTRY",
    "TRACEPARENT",
    "Distribution",
    "Telemetry",
    "UsageRecord",
    "audit",
    "begun_span",
    "configure_logs",
    "continued_span",
    "counter",
    "current_headers",
    "distributions",
    "gauge",
    "get_logger",
    "histogram",
    "keeps_usage",
    "kept_span",
    "mark_failed",
    "note_usage",
    "render",
    "span",
    "span_named_by",
    "start_audit",
    "start_timeline",
    "start_tracing",
    "start_usage_log",
    "stop_audit",
    "stop_usage_log",
    "timeline",
    "traceparent",
    "tracing",
    "use_vllm_names",
]
