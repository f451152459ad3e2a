"""Channels to gateways."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(address: str, credentials: grpc.ChannelCredentials | None) -> Any:
    """A channel to ``address``, ``host:port``; with ``credentials``, over TLS."""
    if credentials is not None:
        return grpc.secure_channel(address, credentials, options=_OPTIONS)
    return grpc.insecure_channel(address, options=_OPTIONS)


def open_async_channel(address: str, credentials: grpc.ChannelCredentials | None) -> Any:
    """A channel as of `open_channel`, for the running event loop."""
    if credentials is not None:
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
    return grpc.aio.insecure_channel(address, options=_OPTIONS)
