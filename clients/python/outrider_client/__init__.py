"""Outrider's client: `Client`, `AsyncClient`, what they return, and what they raise (see `outrider_client.errors`)."""

from outrider_client.aio import AsyncClient, AsyncStream
from outrider_client.client import Client, Stream
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
from outrider_client.types import Answer, Choice, Chunk, Delta, Detail, Message, Model, Usage

__all__ = [
    "Answer",
    "AsyncClient",
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
    "OutriderClientError",
    "PermissionDeniedError",
    "RateLimitError",
    "ServerError",
    "ServiceUnavailableError",
    "Stream",
    "UnreadableAnswerError",
    "Usage",
]
