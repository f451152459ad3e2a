"""What headers say of a generation, beside its body."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from outrider.gateway.doors.schema.generation import DAY_MS, Asked
from outrider.gateway.requests.request import Generation
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request

_SESSION, _TIMEOUT, _COALESCE = "x-outrider-session", "x-request-timeout-ms", "x-outrider-coalesce"

A = TypeVar("A", bound=Asked)


def timed(body: A, request: Request) -> A:
    """``body`` with the shorter of its own ``timeout_ms`` and the header's."""
    timeout_ms = request.headers.get(_TIMEOUT)
    if timeout_ms is None:
        return body
    return msgspec.structs.replace(body, timeout_ms=min(_milliseconds(timeout_ms), body.timeout_ms or DAY_MS))


def routed(asked: Generation, request: Request) -> Generation:
    """``asked`` with the headers' session, and shared with others only where they allow it."""
    return msgspec.structs.replace(
        asked,
        session=request.headers.get(_SESSION) or asked.session,
        coalesce=_coalesces(request) and asked.coalesce,
    )


def _coalesces(request: Request) -> bool:
    wish = request.headers.get(_COALESCE, "true")
    if wish not in ("true", "false"):
        raise InvalidRequest(f"{_COALESCE} must be true or false, not {wish[:40]!r}", param=_COALESCE)
    return wish == "true"


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= DAY_MS):
        raise InvalidRequest(f"{_TIMEOUT} must be an integer from 1 to {DAY_MS}, not {text[:40]!r}", param=_TIMEOUT)
    return int(text)
