"""Errors of the clients, as one tree.

    OutriderClientError
    ├── ConnectionFailedError              no gateway can be reached
    ├── UnreadableAnswerError              the answer is not a gateway's, but for example a proxy's page
    └── GatewayError                       a gateway answered with an error, or a stream ended with one
        ├── BadRequestError           400  and other 4xx: 405, 408, 412, 413, 422, ...
        ├── AuthenticationError       401
        ├── PermissionDeniedError     403
        ├── NotFoundError             404  a model, or a stream that is too old or was cancelled
        ├── ConflictError             409
        ├── RateLimitError            429  `retry_after` says when to retry
        ├── DeadlineError             429, 504  by code: `timeout_ms` or `ttft_ms` was missed or will be
        ├── CancelledError            499  `DELETE /v1/streams/<id>` ended the stream
        └── ServerError               5xx
            └── ServiceUnavailableError  502, 503, 504

Clients retry 429, 502, 503 and 504 up to ``max_retries`` times, unless a deadline was missed or the gateway asks for a
longer wait than ``retry_after_s`` seconds; other errors are raised at once.
"""

from __future__ import annotations

import msgspec


class OutriderClientError(Exception):
    """Base of all errors of this package about requests."""


class ConnectionFailedError(OutriderClientError):
    """No gateway can be reached."""


class UnreadableAnswerError(OutriderClientError):
    """A successful answer is not in a gateway's format."""


class GatewayError(OutriderClientError):
    """An error that a gateway answered.

    ``status`` is the HTTP status, also for an error in mid-stream; ``type``, ``param`` and ``code`` are the fields of
    OpenAI's error object; ``retry_after`` is in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str = "",  # noqa: A002 - the name on the wire
        param: str | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.type = message, status, type
        self.param, self.code = param, code
        self.request_id, self.retry_after = request_id, retry_after


class BadRequestError(GatewayError):
    """The request is invalid."""


class AuthenticationError(GatewayError):
    """The key is missing or invalid."""


class PermissionDeniedError(GatewayError):
    """The key does not allow this."""


class NotFoundError(GatewayError):
    """The model, stream or path does not exist."""


class ConflictError(GatewayError):
    """The object exists already."""


class RateLimitError(GatewayError):
    """A queue or a limit is full."""


class DeadlineError(GatewayError):
    """The answer missed ``timeout_ms``, or its first token ``ttft_ms``, or would have."""


class CancelledError(GatewayError):
    """A client cancelled the stream."""


class ServerError(GatewayError):
    """A fault of the service."""


class ServiceUnavailableError(ServerError):
    """No service can answer at present."""


_BY_STATUS: dict[int, type[GatewayError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitError,
    499: CancelledError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}
_BY_CODE: dict[str | int | None, type[GatewayError]] = {
    "deadline_exceeded": DeadlineError,
    "deadline_unmeetable": DeadlineError,
}
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "failed_precondition_error": 412,
    "rate_limit_error": 429,
    "cancelled_error": 499,
    "service_unavailable_error": 503,
    "timeout_error": 504,
}
_TYPE_OF_STATUS = {status: name for name, status in _STATUS_OF_TYPE.items()} | {500: "server_error"}
_STATUS_OF_CODE = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 412,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_SHOWN = 100
RETRYABLE = (RateLimitError, ServiceUnavailableError)


class ErrorBody(msgspec.Struct):
    """OpenAI's error object."""

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class _ErrorAnswer(msgspec.Struct):
    error: ErrorBody


_decode_error = msgspec.json.Decoder(_ErrorAnswer).decode


def error_of_answer(
    status: int, body: bytes, request_id: str | None = None, retry_after: str | None = None
) -> GatewayError:
    """The error of an answer with ``status``; its body may be a proxy's."""
    try:
        error = _decode_error(body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = ErrorBody()
    return _make(status, error, request_id, _seconds(retry_after))


def error_of_event(error: ErrorBody, request_id: str | None) -> GatewayError:
    """The error that ended a stream."""
    return _make(_STATUS_OF_TYPE.get(error.type or "", 500), error, request_id, None)


def error_of_status(
    code: str, error: ErrorBody, request_id: str | None = None, retry_after: float | None = None
) -> GatewayError:
    """The error of a gRPC call that ended with the status ``code``."""
    status = _STATUS_OF_CODE.get(code, 500)
    error.type = error.type or _TYPE_OF_STATUS[status]
    return _make(status, error, request_id, retry_after)


def unreadable(data: bytes | str) -> UnreadableAnswerError:
    """The error of an answer whose ``data`` are not in a gateway's format."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    shown = text[:_SHOWN]
    return UnreadableAnswerError(f"the answer is not a gateway's, which may be due to a proxy: {shown!r}")


def _make(status: int, error: ErrorBody, request_id: str | None, retry_after: float | None) -> GatewayError:
    by_status = _BY_STATUS.get(status, ServerError if status >= 500 else BadRequestError)
    kind = _BY_CODE.get(error.code, by_status)
    return kind(
        error.message or f"the gateway answered {status}",
        status=status,
        type=error.type or "",
        param=error.param,
        code=None if error.code is None else str(error.code),
        request_id=request_id,
        retry_after=retry_after,
    )


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds; None for a date, which gateways never send."""
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
