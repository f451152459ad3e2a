"""What every HTTP request has: an id, a trace, metrics, an admission, and errors as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from http import HTTPStatus
from secrets import token_hex

from opentelemetry.trace import Span, StatusCode
from outrider.gateway import metrics
from outrider.gateway.admission.access_control import AccessControl, Sender
from outrider.gateway.api.http.messages import json_response
from outrider.gateway.errors import (
    ErrorAnswer,
    MessagesErrorAnswer,
    MethodNotAllowed,
    OllamaErrorAnswer,
    error_answer,
    error_headers,
    is_of_messages,
    is_of_ollama,
    messages_error,
)
from outrider.gateway.settings import Bounds
from outrider.mesh.errors import Internal, InvalidRequest, NotFound, OutriderError
from outrider.mesh.telemetry import TRACEPARENT, continued_span, get_logger, tracing
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars


class PathRouter(Router):
    """Routes requests by path.

    Raises `MethodNotAllowed`, with the allowed methods, if a path lacks the method, and `NotFound` if there is no such
    path, with the path that a base URL lacks its ``/v1`` for.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            await super().__call__(scope, receive, send)
        except HTTPException as error:
            if error.status_code == NotFound.http_status:
                raise NotFound(f"no such path: {self._suggestion(scope)}") from None
            if error.status_code != MethodNotAllowed.http_status:
                raise
            raise self._refusal(scope) from None

    def _suggestion(self, scope: Scope) -> str:
        for path in (f"/v1{scope['path']}", scope["path"].removeprefix("/v1")):
            meant = {**scope, "path": path}
            if path != scope["path"] and any(route.matches(meant)[0] is Match.FULL for route in self.routes):
                return f"did you mean {path}?"
        return "/openapi.json lists what there is"

    def _refusal(self, scope: Scope) -> MethodNotAllowed:
        matching = [route for route in self.routes if route.matches(scope)[0] is not Match.NONE]
        methods = sorted({method for route in matching if isinstance(route, Route) for method in route.methods or ()})
        refusal = MethodNotAllowed(f"this path may be asked with {', '.join(methods)}, not with {scope['method']}")
        refusal.allowed = methods
        return refusal


_SINGLE = (b"authorization", b"x-api-key")
_PARAMETERS = (b"x-outrider-", b"x-request-timeout-ms")
"""Beginnings of headers that hold parameters of a generation."""
_COUNTED = ("POST", "PUT")
"""Methods of requests that make services compute, and so count toward the limit on requests."""
_GUARDED = (
    *("/v1/", "/v2/", "/api/", "/admin/", "/tokenize", "/detokenize", "/rerank", "/score"),
    *("/completion", "/infill", "/apply-template", "/props"),
)


def guarded(path: str) -> bool:
    """Whether requests for ``path`` need an admission."""
    return path.startswith(_GUARDED)


class Guard:
    """An ASGI application around the routes.

    Each `guarded` request gets an `Admission` in its state, and whether its headers hold parameters of a generation.
    """

    def __init__(self, routes: ASGIApp, access: AccessControl) -> None:
        self._routes, self._access = routes, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admits a request and passes it on; raises as `AccessControl.admitted`."""
        if not guarded(scope["path"]):
            return await self._routes(scope, receive, send)
        state, counts = scope["state"], scope["method"] in _COUNTED
        async with self._access.admitted(sender_of(scope, "http"), state["headers"], counts=counts) as admission:
            state["admission"] = admission
            state["has_parameters"] = any(name.startswith(_PARAMETERS) for name, _ in scope["headers"])
            await self._routes(scope, receive, send)


def sender_of(scope: Scope, api: str) -> Sender:
    """The sender of a request that came over ``api``; raises `InvalidRequest` for several keys."""
    single: dict[bytes, str] = {}
    forwarded = []
    for name, value in scope["headers"]:
        if name in _SINGLE:
            if name in single:
                shown = name.decode()
                raise InvalidRequest(f"the header {shown} is given several times: give it once", param=shown)
            single[name] = value.decode("latin-1")
        elif name == b"x-forwarded-for":
            forwarded.append(value.decode("latin-1"))
    authorization, api_key = (single.get(name, "") for name in _SINGLE)
    peer = scope["client"][0] if scope.get("client") else ""
    return Sender(api, peer, authorization, api_key, forwarded, scope["state"]["request_id"])


_log = get_logger("http")
OWN_ID = "x-outrider-request-id"
"""Header of an answer whose client gave the request an id: the request's own id."""
_GIVEN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
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
        named = nullcontext() if exchange.given is None else bound_contextvars(client_request=exchange.given)
        with named, continued_span(_headers(scope), scope["method"]) if traced else nullcontext() as span:
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
    """One request, and the state of its answer; ``given`` is the id that its client gave it, if that is well-formed.

    The request keeps its own id everywhere else: clients and proxies send one id for several requests.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self.status = 0
        self._scope, self._send = scope, send
        self.id, self.given = token_hex(16), _given_id(scope)
        self._headers: dict[str, str] = {} if self.given is None else {OWN_ID: self.id}
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
            headers = self._headers | {"x-request-id": self.given or self.id}
            message["headers"] = [*message["headers"], *((key.encode(), headers[key].encode()) for key in headers)]
        await self._send(message)

    async def fail(self, error: OutriderError, receive: Receive) -> None:
        """Answers with ``error``; raises it if an answer has begun, which breaks the answer off."""
        if self.status:
            raise error
        answer: ErrorAnswer | MessagesErrorAnswer | OllamaErrorAnswer = error_answer(error)
        if is_of_ollama(self._scope["path"]):
            answer = OllamaErrorAnswer(error.message)
        elif is_of_messages(self._scope["path"], self._scope["headers"]):
            answer = MessagesErrorAnswer(messages_error(error), self.id)
            self._headers["request-id"] = self.id
        response = json_response(answer, error.http_status, error_headers(error))
        await response(self._scope, receive, self.send)


def _given_id(scope: Scope) -> str | None:
    given = [value for name, value in scope["headers"] if name == b"x-request-id"]
    text = given[0].decode("latin-1") if len(given) == 1 else ""
    return text if _GIVEN_ID.fullmatch(text) else None


def _headers(scope: Scope) -> dict[str, str]:
    """The headers that name the caller's span."""
    return {key.decode(): value.decode("latin-1") for key, value in scope["headers"] if key in _TRACE_HEADERS}


def _as_outrider_error(error: Exception, request_id: str) -> OutriderError:
    if isinstance(error, OutriderError):
        return error
    _log.error("a request failed", request=request_id, exc_info=error)
    return Internal()
