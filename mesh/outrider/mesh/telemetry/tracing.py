"""OpenTelemetry traces, carried as W3C `traceparent` in HTTP headers, gRPC metadata and NATS headers.

Until `start_tracing` has been given an exporter, `tracing()` is false and the hot paths do nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outrider.mesh.errors import ConfigError

_OTLP_MODULE = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_OTLP_PACKAGE = "opentelemetry-exporter-otlp-proto-http"
_propagator = TraceContextTextMapPropagator()


class _State:
    tracer: Tracer | None = None


class Telemetry:
    """A running export of spans; `close` sends the last ones."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider

    def close(self) -> None:
        """Exports the spans that wait and stops tracing; blocks for at most five seconds."""
        _State.tracer = None
        if self._provider is not None:
            self._provider.force_flush(5000)
            self._provider.shutdown()
            self._provider = None


def start_tracing(kind: str, instance: str, exporter: str | SpanExporter, ratio: float = 1.0) -> Telemetry:
    """Starts exporting spans to ``exporter`` (none, console, otlp, or an exporter itself).

    ``ratio`` of the traces that begin here are kept; a trace that began elsewhere is kept if it is kept there.
    `ConfigError` when the exporter's package is not installed.
    """
    if exporter == "none":
        return Telemetry(None)
    resource = Resource.create({"service.name": f"outrider-{kind}", "service.instance.id": instance})
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(ratio), resource=resource, shutdown_on_exit=False)
    if isinstance(exporter, SpanExporter):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    _State.tracer = provider.get_tracer("outrider")
    return Telemetry(provider)


def tracing() -> bool:
    """Whether spans are exported."""
    return _State.tracer is not None


@contextmanager
def span(name: str, *, kind: SpanKind = SpanKind.INTERNAL, **attributes: Any) -> Iterator[Span]:
    """A span around a block; an exception marks it as failed. Free of cost while tracing is off.

    Only the exception's type is kept: its message may quote a user's text.
    """
    if _State.tracer is None:
        yield trace.INVALID_SPAN
        return
    with _State.tracer.start_as_current_span(
        name, kind=kind, attributes=attributes or None, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(StatusCode.ERROR, type(error).__name__)
            raise


@contextmanager
def continued_span(headers: Mapping[str, str] | None, name: str, **attributes: Any) -> Iterator[Span]:
    """A server's span in the trace of the caller's ``headers`` (keys in lower case, as gRPC gives them)."""
    if _State.tracer is None:
        yield trace.INVALID_SPAN
        return
    token = context.attach(_propagator.extract(dict(headers or {})))
    try:
        with span(name, kind=SpanKind.SERVER, **attributes) as current:
            yield current
    finally:
        context.detach(token)


def current_headers() -> dict[str, str] | None:
    """Headers that name the current span to a called service; None when there is no span."""
    if _State.tracer is None:
        return None
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers or None


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    try:
        module = importlib.import_module(_OTLP_MODULE)
    except ImportError:
        raise ConfigError(f"trace_exporter = otlp needs the package {_OTLP_PACKAGE}: pip install it") from None
    exporter: SpanExporter = module.OTLPSpanExporter()
    return exporter
