"""Calls of other services: one channel and one stub for each, and errors of the class that the service raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import grpc
from outrider.mesh.errors import from_rpc
from outrider.mesh.rpc import options
from outrider.mesh.telemetry import current_headers, tracing

S = TypeVar("S")


class _Channels:
    """The channels of one event loop by address, and the stubs on them."""

    def __init__(self) -> None:
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.stubs: dict[tuple[Callable[[grpc.aio.Channel], Any], str], Any] = {}


_channels_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Channels] = WeakKeyDictionary()


async def call(method: Callable[..., Any], request: Any, timeout: float) -> Any:
    """The response of a stub's unary ``method``, such as ``stub(VerifierStub, address).Submit``.

    A caller that is cancelled cancels the call at the service too.

    Raises:
        OutriderError: what the service raised, with parameter and time to retry; `Unreachable` where no service
            answered; `DeadlineExceeded` after ``timeout`` seconds.
    """
    try:
        return await method(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from None


def stub(kind: Callable[[grpc.aio.Channel], S], address: str) -> S:
    """The running loop's stub of the generated class ``kind`` for the service at ``address``."""
    stubs = _channels().stubs
    cached: S | None = stubs.get((kind, address))
    if cached is None:
        cached = stubs[kind, address] = kind(channel(address))
    return cached


def channel(address: str) -> grpc.aio.Channel:
    """The running loop's channel to ``address``: one for all stubs, connected at the first call.

    An address is host:port, or what `local_target` makes of it.

    A peer that died or froze fails its calls with UNAVAILABLE within about five seconds.
    """
    channels = _channels().channels
    if address not in channels:
        channels[address] = grpc.aio.insecure_channel(
            address, options=options.CHANNEL, interceptors=_interceptors() if tracing() else None
        )
    return channels[address]


async def close_channels() -> None:
    """Closes the running loop's channels; calls in flight are cancelled."""
    closing = _channels_by_loop.pop(asyncio.get_running_loop(), None)
    for each in closing.channels.values() if closing else ():
        await each.close()


def _channels() -> _Channels:
    loop = asyncio.get_running_loop()
    channels = _channels_by_loop.get(loop)
    if channels is None:
        channels = _channels_by_loop[loop] = _Channels()
    return channels


def _interceptors() -> list[grpc.aio.ClientInterceptor]:
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


async def _add_trace_headers(
    continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any
) -> Any:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    for key, value in (current_headers() or {}).items():
        metadata.add(key, value)
    return await continuation(details._replace(metadata=metadata), request)


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request_iterator)


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc] # grpc is untyped
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await _add_trace_headers(continuation, client_call_details, request_iterator)
