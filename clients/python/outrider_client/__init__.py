"""Outrider's client: `Client`, `AsyncClient`, what they return, and what they raise (see `outrider_client.errors`)."""

from outrider_client.aio import AsyncClient
from outrider_client.aio_streams import AsyncStream
from outrider_client.client import Client
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
from outrider_client.responses import (
    AsyncResponseStream,
    OutputItem,
    Response,
    ResponseEvent,
    ResponseStream,
    ResponseUsage,
)
from outrider_client.streams import Stream
from outrider_client.types import Answer, Choice, Chunk, Delta, Detail, Message, Model, Usage

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
