"""The errors that cross a service's edge, as one tree.

    OutriderError
    ├── InvalidRequest        400  INVALID_ARGUMENT
    │   └── ContextExceeded            named in the metadata
    ├── Unauthenticated       401  UNAUTHENTICATED
    ├── PermissionDenied      403  PERMISSION_DENIED
    ├── NotFound              404  NOT_FOUND
    ├── AlreadyExists         409  ALREADY_EXISTS
    ├── FailedPrecondition    412  FAILED_PRECONDITION
    ├── Overloaded            429  RESOURCE_EXHAUSTED   retryable
    │   └── DeadlineUnmeetable         likewise
    ├── Cancelled             499  CANCELLED
    ├── Internal              500  INTERNAL
    ├── Unavailable           503  UNAVAILABLE          retryable
    │   └── Unreachable                for a call without a connection
    └── DeadlineExceeded      504  DEADLINE_EXCEEDED

    ConfigError                    ends a process with exit code 2

A service raises them from its handlers; `outrider.mesh.rpc` turns them into a status with trailing metadata,
and `from_rpc` turns that back into the same class on the caller's side.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Self
from urllib.parse import quote, unquote

# gRPC reads it at its import, and would write a line of its own for every handshake that fails.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

ERROR_KEY = "outrider-error"
PARAM_KEY = "outrider-param"
RETRY_KEY = "retry-after-ms"


class OutriderError(Exception):
    """A failure that is reported to the caller.

    ``message`` is one sentence for the caller, ``param`` the request's field at fault, ``retry_after`` the
    seconds after which another try makes sense. ``type`` is the error type in OpenAI's error objects.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    http_status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InvalidRequest(OutriderError):
    """The request can never succeed as it is."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    http_status = 400
    type = "invalid_request_error"

    def at_index(self, place: int) -> Self:
        """This error, reported for the value at index ``place`` of its parameter."""
        if self.param is not None:
            param = f"{self.param}[{place}]"
            self.message, self.param = param + self.message.removeprefix(self.param), param
        return self


class ContextExceeded(InvalidRequest):
    """The request has no room in the model's context."""

    reason: ClassVar[str] = "context_length_exceeded"


class Unauthenticated(OutriderError):
    """The request has no valid key."""

    code = grpc.StatusCode.UNAUTHENTICATED
    http_status = 401
    type = "authentication_error"


class PermissionDenied(OutriderError):
    """The caller is known and may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED
    http_status = 403
    type = "permission_error"


class NotFound(OutriderError):
    """The thing that the request names does not exist."""

    code = grpc.StatusCode.NOT_FOUND
    http_status = 404
    type = "not_found_error"


class AlreadyExists(OutriderError):
    """The thing that the request would create exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS
    http_status = 409
    type = "conflict_error"


class FailedPrecondition(OutriderError):
    """The service's present state does not allow the request."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    http_status = 412
    type = "failed_precondition_error"


class Overloaded(OutriderError):
    """A queue or a limit is full; ``retry_after`` says when to come back."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    http_status = 429
    type = "rate_limit_error"
    retryable = True


class DeadlineUnmeetable(Overloaded):
    """The request cannot meet its deadline; without ``retry_after``, another try cannot either."""

    reason: ClassVar[str] = "deadline_unmeetable"
    retryable = False


class Cancelled(OutriderError):
    """The caller gave up."""

    code = grpc.StatusCode.CANCELLED
    http_status = 499
    type = "cancelled_error"


class DeadlineExceeded(OutriderError):
    """The caller's time ran out."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    http_status = 504
    type = "timeout_error"


class Unavailable(OutriderError):
    """No service can answer at the moment; another try may succeed."""

    code = grpc.StatusCode.UNAVAILABLE
    http_status = 503
    type = "service_unavailable_error"
    retryable = True


class Unreachable(Unavailable):
    """There is no connection to the called service; where the connection ``broke``, it may have received the call.

    A service that is frozen keeps its connection, and is `Unavailable`.
    """

    broke: bool = False


class Internal(OutriderError):
    """A fault of Outrider; the caller gets no details."""

    code = grpc.StatusCode.INTERNAL
    http_status = 500

    def __init__(
        self, message: str = "internal error", *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__("internal error")


class ConfigError(Exception):
    """The configuration cannot be used: one sentence that names the key and the place it came from."""

    exit_code: ClassVar[int] = 2


ERRORS: tuple[type[OutriderError], ...] = (
    InvalidRequest,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Overloaded,
    Cancelled,
    DeadlineExceeded,
    Unavailable,
    Internal,
)
_BY_CODE = {error.code: error for error in ERRORS} | {
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.ABORTED: Unavailable,
}
_BY_NAME: dict[str, type[OutriderError]] = {
    kind.__name__: kind for kind in (*ERRORS, ContextExceeded, DeadlineUnmeetable)
}
_UNREACHABLE = "the service cannot be reached"
_NEVER_REACHED = "failed to connect"
"""The beginning of gRPC's message where there was no connection."""
_SILENT = ("ping timeout", "keepalive")
"""Parts of gRPC's message where the connection stood and nothing came: the process or the network is frozen."""
_WRITE_FAILED = "Internal error from Core"
"""What grpc.aio says of a stream whose connection broke while it wrote."""
_TOO_LONG = "message larger than max"
"""A part of gRPC's message for one over its limit; the status is RESOURCE_EXHAUSTED, as that of a full queue."""


def trailing_metadata(error: OutriderError) -> tuple[tuple[str, str], ...]:
    """The fields of ``error`` that a gRPC status has no place for."""
    pairs = [(ERROR_KEY, type(error).__name__)]
    if error.param is not None:
        pairs.append((PARAM_KEY, quote(error.param, safe="[]().,:/ ")))
    if error.retry_after is not None:
        pairs.append((RETRY_KEY, str(round(error.retry_after * 1000))))
    return tuple(pairs)


def from_rpc(error: grpc.aio.AioRpcError) -> OutriderError:
    """The error that the called service raised; `Unreachable` where there is no connection to it.

    The message for a status that gRPC itself made (connection refused, keepalive lost) contains no address.
    """
    metadata = {str(key): str(value) for key, value in (error.trailing_metadata() or ())}
    return from_status(error.code(), error.details() or "", metadata)


def from_status(code: grpc.StatusCode, details: str, metadata: Mapping[str, str]) -> OutriderError:
    """As `from_rpc`, for the parts of a status and its trailing ``metadata``."""
    kind = _BY_NAME.get(metadata.get(ERROR_KEY, ""), _BY_CODE.get(code, Internal))
    message = details or kind.__name__
    if ERROR_KEY not in metadata and (grpc_error := _made_by_grpc(kind, message)) is not None:
        return grpc_error
    param = metadata.get(PARAM_KEY)
    retry = metadata.get(RETRY_KEY, "")
    return kind(
        message,
        param=None if param is None else unquote(param),
        retry_after=int(retry) / 1000 if retry.isdecimal() else None,
    )


def _made_by_grpc(kind: type[OutriderError], message: str) -> OutriderError | None:
    """The error for a status that gRPC itself made; None where it is ``kind``."""
    if kind is Unavailable or (kind is Internal and _WRITE_FAILED in message):
        if any(part in message for part in _SILENT):
            return Unavailable("the service gives no sign of life")
        unreachable = Unreachable(_UNREACHABLE)
        unreachable.broke = not message.startswith(_NEVER_REACHED)
        return unreachable
    if kind is Cancelled:  # the caller's own cancellation is no status but a `CancelledError`
        return Unavailable("the service ended while it had the call")
    if kind is Overloaded and _TOO_LONG in message:
        return InvalidRequest(f"the request or its answer is too long: {message}")
    return None
