"""Channels to other services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import grpc
from outrider.mesh.rpc.framing import MESSAGE_BYTES
from outrider.mesh.telemetry import current_headers, tracing

_OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_channels: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, grpc.aio.Channel]] = WeakKeyDictionary()


def channel(address: str) -> grpc.aio.Channel:
    """The running loop's channel to ``address``: one for all stubs, opened at the first call.

    An address is host:port, or what `local_target` makes of it.

    A peer that died or froze fails its calls with UNAVAILABLE within about five seconds.
    """
    channels = _channels.setdefault(asyncio.get_running_loop(), {})
    if address not in channels:
        channels[address] = grpc.aio.insecure_channel(
            address, options=_OPTIONS, interceptors=_interceptors() if tracing() else None
        )
    return channels[address]


async def close_grpc() -> None:
    """Closes the running loop's channels; calls in flight are cancelled."""
    for open_channel in _channels.pop(asyncio.get_running_loop(), {}).values():
        await open_channel.close()


def _interceptors() -> list[grpc.aio.ClientInterceptor]:
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


async def _carry(continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any) -> Any:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    for key, value in (current_headers() or {}).items():
        metadata.add(key, value)
    return await continuation(details._replace(metadata=metadata), request)


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _carry(continuation, client_call_details, request)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _carry(continuation, client_call_details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _carry(continuation, client_call_details, request_iterator)


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _carry(continuation, client_call_details, request_iterator)
