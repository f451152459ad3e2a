"""What every HTTP request has: an id, a trace, metrics, and errors as JSON."""

from __future__ import annotations

from contextlib import nullcontext
from http import HTTPStatus
from secrets import token_hex

from opentelemetry.trace import Span, StatusCode
from outrider.gateway import metrics
from outrider.gateway.api.http.messages import json_response
from outrider.gateway.errors import error_answer, error_headers
from outrider.gateway.settings import Bounds
from outrider.mesh.errors import Internal, NotFound, OutriderError
from outrider.mesh.telemetry import TRACEPARENT, continued_span, get_logger, tracing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = get_logger("http")
_CLIENT_LEFT = 499
_TRACE_HEADERS = (TRACEPARENT.encode(), b"tracestate")
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are asked for every few seconds, and begin no traces."""
_RAISES_REFUSALS = object()
"""Value of ``scope["app"]``: with it, starlette's routes raise their refusals. A value that refers to the request would
keep its memory until a garbage collection."""


class Edge:
    """An ASGI application around the routes. A request's body may pause for ``body_idle_s`` seconds."""

    def __init__(self, routes: ASGIApp, body_idle_s: float = Bounds().body_idle_s) -> None:
        self._routes, self._body_idle_s = routes, body_idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, send)
        scope["state"]["body_idle_s"] = self._body_idle_s
        traced = tracing() and scope["path"] not in _PROBES
        with continued_span(_headers(scope), scope["method"]) if traced else nullcontext() as span:
            await self._answer(scope, receive, exchange)
            if span is not None and span.is_recording():
                exchange.describe(span)
        metrics.requests.labels(exchange.route, str(exchange.status)).inc()

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        try:
            await self._routes(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = _CLIENT_LEFT
        except Exception as error:
            await exchange.fail(_as_outrider_error(error, exchange.id), receive)


class _Exchange:
    """One request, and the state of its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.status = 0
        self._scope, self._send = scope, send
        self.id = token_hex(16)
        self._headers: dict[str, str] = {}
        scope["state"] = {**scope.get("state", {}), "request_id": self.id, "headers": self._headers}
        scope["app"] = _RAISES_REFUSALS

    @property
    def route(self) -> str:
        """The route's pattern, for metrics and traces: what clients write as a path would be too many names."""
        route = self._scope.get("route")
        return str(route.path) if route is not None else "none"

    def describe(self, span: Span) -> None:
        """Names ``span`` after the route, and adds attributes of OpenTelemetry's conventions for HTTP."""
        method = self._scope["method"]
        span.update_name(f"{method} {self.route}")
        span.set_attributes(
            {"http.request.method": method, "http.route": self.route, "http.response.status_code": self.status}
        )
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(StatusCode.ERROR)

    async def send(self, message: Message) -> None:
        """Passes a message on; adds the request's id and the headers in its state to the first one."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = self._headers | {"x-request-id": self.id}
            message["headers"] = [*message["headers"], *((key.encode(), headers[key].encode()) for key in headers)]
        await self._send(message)

    async def fail(self, error: OutriderError, receive: Receive) -> None:
        """Answers with ``error``; raises it if an answer has begun, which breaks the answer off."""
        if self.status:
            raise error
        response = json_response(error_answer(error), error.http_status, error_headers(error))
        await response(self._scope, receive, self.send)


def _headers(scope: Scope) -> dict[str, str]:
    """The headers that name the caller's span."""
    return {key.decode(): value.decode("latin-1") for key, value in scope["headers"] if key in _TRACE_HEADERS}


def _as_outrider_error(error: Exception, request_id: str) -> OutriderError:
    if isinstance(error, OutriderError):
        return error
    if isinstance(error, HTTPException):
        return NotFound("no such path: /openapi.json lists what there is")
    _log.error("a request failed", request=request_id, exc_info=error)
    return Internal()
