"""What stands around every HTTP request: its id, its trace, its metrics, and its errors as JSON."""

from __future__ import annotations

from contextlib import nullcontext
from secrets import token_hex

from outrider.gateway import metrics
from outrider.gateway.doors.http.messages import json_response
from outrider.gateway.errors import error_answer, error_headers
from outrider.gateway.settings import Bounds
from outrider.mesh.errors import Internal, NotFound, OutriderError
from outrider.mesh.telemetry import continued_span, get_logger, tracing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = get_logger("http")
_CLIENT_LEFT = 499
_RAISING = object()
"""Has starlette's routes raise what they refuse; it must not lead back to the request, whose memory then waits for a
collection."""


class Edge:
    """Wraps the routes, as an ASGI application. A request's body may pause for ``body_idle_s`` seconds."""

    def __init__(self, routes: ASGIApp, body_idle_s: float = Bounds().body_idle_s) -> None:
        self._routes, self._body_idle_s = routes, body_idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, send)
        scope["state"]["body_idle_s"] = self._body_idle_s
        with continued_span(_headers(scope), f"{scope['method']} {scope['path']}") if tracing() else nullcontext():
            await self._answer(scope, receive, exchange)
        metrics.requests.labels(exchange.route, str(exchange.status)).inc()

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        try:
            await self._routes(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = _CLIENT_LEFT
        except Exception as error:
            await exchange.fail(_known(error, exchange.id), receive)


class _Exchange:
    """One request and what was answered so far."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.status = 0
        self._scope, self._send = scope, send
        self.id = token_hex(16)
        self._headers: dict[str, str] = {}
        scope["state"] = {**scope.get("state", {}), "request_id": self.id, "headers": self._headers}
        scope["app"] = _RAISING

    @property
    def route(self) -> str:
        """The route's pattern: a path itself would make a metric of every client's typing error."""
        route = self._scope.get("route")
        return str(route.path) if route is not None else "none"

    async def send(self, message: Message) -> None:
        """Passes on, with the request's id and the headers in its state on the first message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            told = self._headers | {"x-request-id": self.id}
            message["headers"] = [*message["headers"], *((key.encode(), told[key].encode()) for key in told)]
        await self._send(message)

    async def fail(self, error: OutriderError, receive: Receive) -> None:
        """Answers with ``error``, unless an answer has begun: then all that can be done is to break it off."""
        if self.status:
            raise error
        response = json_response(error_answer(error), error.http_status, error_headers(error))
        await response(self._scope, receive, self.send)


def _headers(scope: Scope) -> dict[str, str]:
    return {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}


def _known(error: Exception, request_id: str) -> OutriderError:
    if isinstance(error, OutriderError):
        return error
    if isinstance(error, HTTPException):
        return NotFound("no such path: /openapi.json lists what there is")
    _log.error("a request failed", request=request_id, exc_info=error)
    return Internal()
