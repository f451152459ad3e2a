"""OpenTelemetry traces, carried as W3C `traceparent` in HTTP headers, gRPC metadata and NATS headers.

Until `start_tracing` has been given an exporter, `tracing()` is false and the hot paths do nothing else. A request
whose trace is not kept has no spans and no headers, here and in the services that it calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import random
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outrider.mesh.telemetry.exporters import make_exporter

TRACEPARENT = "traceparent"
"""The header that names a span to a called service."""
_CLOSE_S = 2.0
_propagator = TraceContextTextMapPropagator()


class _State:
    tracer: Tracer | None = None
    ratio = 1.0


class Telemetry:
    """A running export of spans; `close` sends the last ones."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider

    def close(self) -> None:
        """Exports the spans that wait and stops tracing; blocks for at most two seconds."""
        _State.tracer = None
        provider, self._provider = self._provider, None
        if provider is not None:
            last = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
            last.start()
            last.join(_CLOSE_S)  # a collector that does not answer would hold the process up for longer


def start_tracing(kind: str, instance: str, exporter: str | SpanExporter, ratio: float = 1.0) -> Telemetry:
    """Starts exporting spans to ``exporter`` (none, console, otlp, file:PATH, or an exporter itself).

    ``ratio`` of the traces that `continued_span` begins are kept; a trace that began elsewhere is kept if it is kept
    there. A thread exports: spans that the exporter does not take in time are dropped, and nobody waits. `ConfigError`
    for a file that cannot be written.
    """
    if exporter == "none":
        return Telemetry(None)
    resource = Resource.create({"service.name": f"outrider-{kind}", "service.instance.id": instance})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if isinstance(exporter, SpanExporter):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        provider.add_span_processor(BatchSpanProcessor(make_exporter(exporter)))
    _State.tracer, _State.ratio = provider.get_tracer("outrider"), ratio
    return Telemetry(provider)


def tracing() -> bool:
    """Whether spans are exported."""
    return _State.tracer is not None


@contextmanager
def span(
    name: str, *, kind: SpanKind = SpanKind.INTERNAL, attributes: Mapping[str, Any] | None = None
) -> Iterator[Span]:
    """A span around a block; an exception marks it as failed. Free of cost while tracing is off.

    Only the exception's type is kept: its message may quote a user's text.
    """
    if _State.tracer is None:
        yield trace.INVALID_SPAN
        return
    with _State.tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            mark_failed(current, error)
            raise


@contextmanager
def continued_span(
    caller: Mapping[str, str] | SpanContext | None,
    name: str,
    *,
    kind: SpanKind = SpanKind.SERVER,
    attributes: Mapping[str, Any] | None = None,
) -> Iterator[Span]:
    """A span in the trace of the ``caller``: headers (keys in lower case, as gRPC gives them), or the caller's span.

    Headers that name no span begin a trace, if it is one of those to keep. Yields a span that records nothing where the
    trace is not kept.
    """
    parent = _kept_caller(caller)
    if parent is None or _State.tracer is None:
        yield trace.INVALID_SPAN
        return
    token = context.attach(parent)
    try:
        with span(name, kind=kind, attributes=attributes) as current:
            yield current
    finally:
        context.detach(token)


def begun_span(
    name: str,
    parent: SpanContext | None = None,
    *,
    at: int | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, Any] | None = None,
) -> Span:
    """A span that is no block: the caller ends it. It began at ``at``, in nanoseconds since 1970, or now.

    It is inside ``parent``, or inside the current span; it records nothing while tracing is off.
    """
    if _State.tracer is None:
        return trace.INVALID_SPAN
    inside = _inside(parent) if parent is not None else None
    return _State.tracer.start_span(name, inside, kind=kind, start_time=at, attributes=attributes)


def mark_failed(failed: Span, error: BaseException) -> None:
    """Marks a span as failed with the type of ``error``, and without the message of ``error``."""
    failed.set_status(StatusCode.ERROR, type(error).__name__)
    failed.set_attribute("error.type", type(error).__name__)


def kept_span() -> SpanContext | None:
    """The current span; None if there is none, or if its trace is not kept."""
    if _State.tracer is None:
        return None
    current = trace.get_current_span()
    return current.get_span_context() if current.is_recording() else None


def current_headers() -> dict[str, str] | None:
    """Headers that name the current span to a called service; None where there is none, or its trace is not kept."""
    if kept_span() is None:
        return None
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers


def traceparent(of: SpanContext) -> str:
    """The header `TRACEPARENT` that names the span ``of``."""
    headers: dict[str, str] = {}
    _propagator.inject(headers, _inside(of))
    return headers[TRACEPARENT]


def span_named_by(header: str) -> SpanContext | None:
    """The span that a header `TRACEPARENT` names; None if it names none, or one whose trace is not kept."""
    named = trace.get_current_span(_propagator.extract({TRACEPARENT: header}, Context())).get_span_context()
    return named if named.is_valid and named.trace_flags.sampled else None


def _kept_caller(caller: Mapping[str, str] | SpanContext | None) -> Context | None:
    """Where a span of ``caller`` belongs; empty where it begins a trace, and None where the trace is not kept."""
    if _State.tracer is None:
        return None
    if isinstance(caller, SpanContext):
        return _inside(caller) if caller.trace_flags.sampled else None
    if caller and TRACEPARENT in caller:
        named = _propagator.extract(caller, Context())
        context_of = trace.get_current_span(named).get_span_context()
        if context_of.is_valid:
            return named if context_of.trace_flags.sampled else None
    return Context() if random() < _State.ratio else None


def _inside(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())
