"""Parameters of a generation in HTTP headers."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from outrider.gateway.api.schema.generation import DAY_MS, GenerationBody
from outrider.gateway.request.generation import Generation
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request

_SESSION, _TIMEOUT, _COALESCE = "x-outrider-session", "x-request-timeout-ms", "x-outrider-coalesce"

RESUMABLE = "x-outrider-resumable"
"""Header of a stream: absent, or ``false`` where the broker has no record of it to resume it by."""

B = TypeVar("B", bound=GenerationBody)


def with_timeout_header(body: B, request: Request) -> B:
    """``body`` with the shorter of its own ``timeout_ms`` and the header's."""
    if request.headers.get(_TIMEOUT) is None:
        return body
    return msgspec.structs.replace(body, timeout_ms=shorter_timeout(body.timeout_ms, request))


def shorter_timeout(timeout_ms: int | None, request: Request) -> int | None:
    """The shorter of ``timeout_ms`` and the header's, in milliseconds; None without either."""
    header = request.headers.get(_TIMEOUT)
    return timeout_ms if header is None else min(_milliseconds(header), timeout_ms or DAY_MS)


def with_routing_headers(generation: Generation, request: Request) -> Generation:
    """``generation`` with the session in the headers, and coalesced only if the headers allow it."""
    return msgspec.structs.replace(
        generation,
        session=request.headers.get(_SESSION) or generation.session,
        coalesce=_coalesces(request) and generation.coalesce,
    )


def note_trouble(request: Request, trouble: str | None) -> None:
    """Tells in the answer's headers that its stream cannot be recorded, if ``trouble`` says why."""
    if trouble is not None:
        request.state.headers[RESUMABLE] = "false"


def _coalesces(request: Request) -> bool:
    value = request.headers.get(_COALESCE, "true")
    if value not in ("true", "false"):
        raise InvalidRequest(f"{_COALESCE} must be true or false, not {value[:40]!r}", param=_COALESCE)
    return value == "true"


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= DAY_MS):
        raise InvalidRequest(f"{_TIMEOUT} must be an integer from 1 to {DAY_MS}, not {text[:40]!r}", param=_TIMEOUT)
    return int(text)
