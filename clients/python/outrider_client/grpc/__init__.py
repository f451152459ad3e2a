"""The clients over gRPC; they need the extra ``grpc``. Errors and types are those of `outrider_client`."""

from outrider_client._async.grpc import AsyncClient, AsyncStream
from outrider_client._sync.grpc import Client, Stream

__all__ = ["AsyncClient", "AsyncStream", "Client", "Stream"]
