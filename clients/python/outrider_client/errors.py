"""What can go wrong, as one tree.

    OutriderClientError
    ├── ConnectionFailedError              no gateway could be reached, or none any more
    ├── UnreadableAnswerError              what answered is no gateway: the page of a proxy, say
    └── GatewayError                       a gateway answered with an error, or a stream ended in one
        ├── BadRequestError           400  and other 4xx: 405, 408, 412, 413, 422, ...
        ├── AuthenticationError       401
        ├── PermissionDeniedError     403
        ├── NotFoundError             404  a model, or a stream that is too old or was cancelled
        ├── ConflictError             409
        ├── RateLimitError            429  `retry_after` says when to come back
        ├── DeadlineError             429, 504  by its code: `timeout_ms` or `ttft_ms` was or will be missed
        ├── CancelledError            499  the stream was ended by `DELETE /v1/streams/<id>`
        └── ServerError               5xx
            └── ServiceUnavailableError  502, 503, 504

429, 502, 503 and 504 are tried again, as often as the client's ``max_retries`` says, unless a deadline was missed or
the gateway asks for more than ``retry_after_s`` seconds of patience; the others are raised at once.
"""

from __future__ import annotations

import msgspec


class OutriderClientError(Exception):
    """Anything that this package raises about a request."""


class ConnectionFailedError(OutriderClientError):
    """No gateway could be reached."""


class UnreadableAnswerError(OutriderClientError):
    """An answer that is no error is not what a gateway says."""


class GatewayError(OutriderClientError):
    """A gateway's own error.

    ``status`` is that of HTTP, also for an error in mid-stream; ``type``, ``param`` and ``code`` are as in OpenAI's
    error objects; ``retry_after`` is in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str = "",  # noqa: A002 - as the wire calls it
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
    """The request can never succeed as it is."""


class AuthenticationError(GatewayError):
    """No key, or one that is not valid."""


class PermissionDeniedError(GatewayError):
    """The key does not allow this."""


class NotFoundError(GatewayError):
    """There is no such model, stream or path."""


class ConflictError(GatewayError):
    """It is there already."""


class RateLimitError(GatewayError):
    """A queue or a limit is full."""


class DeadlineError(GatewayError):
    """The answer was not there by ``timeout_ms``, or its first token by ``ttft_ms``, or could not have been."""


class CancelledError(GatewayError):
    """Somebody ended the stream."""


class ServerError(GatewayError):
    """A fault of the service."""


class ServiceUnavailableError(ServerError):
    """Nobody can answer at the moment."""


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


def error_of_answer(
    status: int, body: bytes, request_id: str | None = None, retry_after: str | None = None
) -> GatewayError:
    """The error that an answer of ``status`` tells, whatever proxy may have written its body."""
    try:
        told = msgspec.json.decode(body, type=_ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = ErrorBody()
    return _make(status, told, request_id, _seconds(retry_after))


def error_of_event(told: ErrorBody, request_id: str | None) -> GatewayError:
    """The error that ended a stream."""
    return _make(_STATUS_OF_TYPE.get(told.type or "", 500), told, request_id, None)


def error_of_status(
    code: str, told: ErrorBody, request_id: str | None = None, retry_after: float | None = None
) -> GatewayError:
    """The error of a call over gRPC that ended with the status ``code``."""
    status = _STATUS_OF_CODE.get(code, 500)
    told.type = told.type or _TYPE_OF_STATUS[status]
    return _make(status, told, request_id, retry_after)


def unreadable(data: bytes | str) -> UnreadableAnswerError:
    """The error of an answer that holds ``data`` where a gateway's would hold something else."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    shown = text[:_SHOWN]
    return UnreadableAnswerError(f"the answer is not a gateway's, which may be due to a proxy: {shown!r}")


def _make(status: int, told: ErrorBody, request_id: str | None, retry_after: float | None) -> GatewayError:
    by_status = _BY_STATUS.get(status, ServerError if status >= 500 else BadRequestError)
    kind = _BY_CODE.get(told.code, by_status)
    return kind(
        told.message or f"the gateway answered {status}",
        status=status,
        type=told.type or "",
        param=told.param,
        code=None if told.code is None else str(told.code),
        request_id=request_id,
        retry_after=retry_after,
    )


def _seconds(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds; its other form, a date, is not told by gateways and taken for none."""
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
