"""Outrider's client: `Client`, `AsyncClient`, their results and their errors (see `outrider_client.errors`)."""

from outrider_client._async.client import AsyncClient
from outrider_client._async.responses import AsyncResponseStream
from outrider_client._async.streams import AsyncStream
from outrider_client._sync.client import Client
from outrider_client._sync.responses import ResponseStream
from outrider_client._sync.streams import Stream
from outrider_client.errors import (
    AuthenticationError,
    BadRequestError,
    CancelledError,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    GatewayError,
    NotFoundError,
    OutriderClientError,
    PermissionDeniedError,
    RateLimitError,
    ServerError,
    ServiceUnavailableError,
    UnreadableAnswerError,
)
from outrider_client.types import (
    Answer,
    Choice,
    Chunk,
    Delta,
    Detail,
    Message,
    Model,
    OutputItem,
    Response,
    ResponseEvent,
    ResponseUsage,
    Usage,
)

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncResponseStream",
    "AsyncStream",
    "AuthenticationError",
    "BadRequestError",
    "CancelledError",
    "Choice",
    "Chunk",
    "Client",
    "ConflictError",
    "ConnectionFailedError",
    "DeadlineError",
    "Delta",
    "Detail",
    "GatewayError",
    "Message",
    "Model",
    "NotFoundError",
    "OutputItem",
    "OutriderClientError",
    "PermissionDeniedError",
    "RateLimitError",
    "Response",
    "ResponseEvent",
    "ResponseStream",
    "ResponseUsage",
    "ServerError",
    "ServiceUnavailableError",
    "Stream",
    "UnreadableAnswerError",
    "Usage",
]
