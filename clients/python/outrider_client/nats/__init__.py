"""The client over NATS; it needs the extra ``nats``. Errors and types are those of `outrider_client`."""

from outrider_client.nats.client import AsyncClient
from outrider_client.nats.stream import AsyncStream

__all__ = ["AsyncClient", "AsyncStream"]
