"""Errors on their way to HTTP clients."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import ClassVar

import msgspec
from outrider.mesh.errors import DeadlineExceeded, InvalidRequest, NotFound, OutriderError, Unauthenticated


class UnknownModel(NotFound):
    """No service serves the model that a request names."""

    reason: ClassVar[str] = "model_not_found"


class TooLarge(InvalidRequest):
    """The request's body has more bytes than are taken."""

    http_status = 413
    reason: ClassVar[str] = "request_too_large"


class TargetTooLong(InvalidRequest):
    """The request's path and query have more bytes than are taken."""

    http_status = 414


class HeadersTooLarge(InvalidRequest):
    """The request's headers are more, or have more bytes, than are taken."""

    http_status = 431


class WrongContentType(InvalidRequest):
    """The request's body is not said to be JSON."""

    http_status = 415


class MethodNotAllowed(InvalidRequest):
    """The path exists, for other methods; ``allowed`` are those."""

    http_status = 405
    allowed: Collection[str] = ()


class TimedOut(InvalidRequest):
    """The request itself took too long to arrive."""

    http_status = 408


class Late(DeadlineExceeded):
    """The time that the client gave is over."""

    reason: ClassVar[str] = "deadline_exceeded"


class Fatal(OutriderError):
    """Verifiers die of the request, or seem to."""

    reason: ClassVar[str] = "verifiers_died"


class ErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """What a failed request is answered with, and the frame that ends a failed stream."""

    error: ErrorBody


def error_answer(error: OutriderError) -> ErrorAnswer:
    """``error`` as OpenAI's clients read it."""
    return ErrorAnswer(ErrorBody(error.message, error.type, error.param, getattr(error, "reason", None)))


def error_headers(error: OutriderError) -> dict[str, str]:
    """Headers that an error asks for (RFC 9110).

    ``Retry-After`` in whole seconds, where another try makes sense; how to say who one is (11.6.1); the methods that
    are allowed (15.5.6); and that the connection of a request that did not come whole ends (15.5.9).
    """
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, TimedOut):
        return {"connection": "close"}
    if error.retry_after is None and not error.retryable:
        return {}
    return {"retry-after": str(max(1, math.ceil(error.retry_after or 1.0)))}
