"""Structured logs on standard error: one JSON object a line, with the trace's id, without users' text."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog
from opentelemetry import trace
from outrider.mesh.telemetry.tracing import tracing
from structlog.typing import EventDict, Processor

_CONTENT = frozenset({"prompt", "text", "messages", "completion", "content", "body"})


def get_logger(name: str) -> Any:
    """A logger whose lines carry ``module=name``; ``log.info("event happened", key=value)``."""
    return structlog.get_logger(module=name)


def configure_logs(level: str = "info", form: Literal["json", "console"] = "json", **bound: Any) -> None:
    """Sends our logs and those of libraries to standard error; ``bound`` goes on every line."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Bind(bound),
        _add_trace,
        _hide_content,
    ]
    if form == "json":
        shared.append(structlog.processors.format_exc_info)
    plain_traceback = structlog.dev.plain_traceback  # the default shows local variables, and so users' text
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain_traceback)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    _route_libraries(level, shared, renderer)


class _Bind:
    """Processor that puts the process's own keys on every line."""

    def __init__(self, bound: dict[str, Any]) -> None:
        self._bound = bound

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        return {**event, **{key: value for key, value in self._bound.items() if key not in event}}


def _add_trace(logger: Any, method: str, event: EventDict) -> EventDict:
    if tracing():
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            event["trace_id"] = trace.format_trace_id(context.trace_id)
            event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _hide_content(logger: Any, method: str, event: EventDict) -> EventDict:
    for key in _CONTENT & event.keys():
        event[key] = f"({len(str(event[key]))} characters)"
    return event


def _route_libraries(level: str, shared: list[Processor], renderer: Processor) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=max(logging.WARNING, _level_number(level)), handlers=[handler], force=True)


def _level_number(level: str) -> int:
    return int(logging.getLevelNamesMapping()[level.upper()])
