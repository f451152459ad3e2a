"""The gateway's errors, and their form in HTTP answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import ClassVar

import msgspec
from outrider.mesh.errors import (
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    OutriderError,
    Unauthenticated,
)


class UnknownModel(NotFound):
    """No service serves the model that a request names."""

    reason: ClassVar[str] = "model_not_found"


class TooLarge(InvalidRequest):
    """The request's body has more bytes than allowed."""

    http_status = 413
    reason: ClassVar[str] = "request_too_large"


class TargetTooLong(InvalidRequest):
    """The request's path and query have more bytes than allowed."""

    http_status = 414


class HeadersTooLarge(InvalidRequest):
    """The request has more headers, or more bytes of headers, than allowed."""

    http_status = 431


class WrongContentType(InvalidRequest):
    """The request's content type is not JSON."""

    http_status = 415


class WrongEncoding(InvalidRequest):
    """The request's body is encoded, as by compression."""

    http_status = 415


class PromptRefused(InvalidRequest):
    """A filter refuses the prompt."""

    reason: ClassVar[str] = "content_filter"


class MethodNotAllowed(InvalidRequest):
    """The path exists, but not for this method; ``allowed`` holds its methods."""

    http_status = 405
    allowed: Collection[str] = ()


class TimedOut(InvalidRequest):
    """The request took too long to arrive."""

    http_status = 408


class DeadlinePassed(DeadlineExceeded):
    """A deadline of the client has passed."""

    reason: ClassVar[str] = "deadline_exceeded"


class FatalRequest(OutriderError):
    """Verifiers died with the request, probably because of it."""

    reason: ClassVar[str] = "verifiers_died"


class ErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The answer to a failed request, and the last event of a failed stream."""

    error: ErrorBody


def error_answer(error: OutriderError) -> ErrorAnswer:
    """``error`` in OpenAI's form."""
    return ErrorAnswer(ErrorBody(error.message, error.type, error.param, getattr(error, "reason", None)))


VERSION = "anthropic-version"
"""The header of clients of Anthropic's API."""
_MESSAGES = "/v1/messages"
_MODELS = "/v1/models"
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Types of Anthropic's errors, by the HTTP status."""


class MessagesErrorBody(msgspec.Struct, frozen=True):
    """Anthropic's error object."""

    type: str
    message: str


class MessagesErrorAnswer(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The answer to a failed request in Anthropic's form."""

    error: MessagesErrorBody
    request_id: str


class OllamaErrorAnswer(msgspec.Struct, frozen=True):
    """The answer to a failed request in Ollama's form, and the last line of a failed stream."""

    error: str


def is_of_ollama(path: str) -> bool:
    """Whether a request for ``path`` expects answers in Ollama's form."""
    return path.startswith("/api/")


def is_of_messages(path: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request for ``path`` expects answers in Anthropic's form."""
    if path == _MESSAGES or path.startswith(f"{_MESSAGES}/"):
        return True
    return path.startswith(_MODELS) and any(name == VERSION.encode() for name, _ in headers)


def messages_error(error: OutriderError) -> MessagesErrorBody:
    """``error`` in Anthropic's form."""
    other = "api_error" if error.http_status >= Internal.http_status else "invalid_request_error"
    return MessagesErrorBody(_KINDS.get(error.http_status, other), error.message)


def error_headers(error: OutriderError) -> dict[str, str]:
    """The headers of an error (RFC 9110).

    ``Retry-After`` in whole seconds if another attempt makes sense, ``WWW-Authenticate`` (11.6.1), ``Allow`` (15.5.6),
    ``Connection: close`` for a request that did not arrive whole (15.5.9), and ``Accept-Encoding`` (15.5.16).
    """
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, WrongEncoding):
        return {"accept-encoding": "identity"}
    if isinstance(error, TimedOut):
        return {"connection": "close"}
    if error.retry_after is None and not error.retryable:
        return {}
    return {"retry-after": str(max(1, math.ceil(error.retry_after or 1.0)))}
