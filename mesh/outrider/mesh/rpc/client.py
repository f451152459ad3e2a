"""Calls of other services: one channel and one stub for each, and errors of the class that the service raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import grpc
from outrider.mesh.errors import from_rpc
from outrider.mesh.rpc.channels import LAST_CALLS_S, Channels
from outrider.mesh.rpc.trace_headers import TracedChannel
from outrider.mesh.security import Certificates
from outrider.mesh.telemetry import tracing

S = TypeVar("S")


_channels_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Channels] = WeakKeyDictionary()


async def call(method: Callable[..., Any], request: Any, timeout: float) -> Any:
    """The response of a stub's unary ``method``, such as ``stub(VerifierStub, address).Submit``.

    A caller that is cancelled cancels the call at the service too.

    Raises:
        OutriderError: what the service raised, with parameter and time to retry; `Unreachable` where there is no
            connection to it; `DeadlineExceeded` after ``timeout`` seconds.
    """
    try:
        return await method(request, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc(error) from None


def stub(stub_type: Callable[[Any], S], address: str, kind: str = "", *, shared: bool = False) -> S:
    """The running loop's stub of a generated class for the service at ``address``; see `channel`.

    Unary calls of a ``shared`` stub travel in one stream (see `SharedChannel`).
    """
    channels = _channels()
    cached: S | None = channels.stubs.get((stub_type, address, kind, shared))
    if cached is None:
        opened = channels.get(address, kind)
        if tracing():
            opened = TracedChannel(opened)
        elif shared:
            opened = channels.shared(address, kind)
        cached = channels.stubs[stub_type, address, kind, shared] = stub_type(opened)
    return cached


def channel(address: str, kind: str = "") -> grpc.aio.Channel:
    """The running loop's channel to ``address``: one for all stubs, connected at the first call.

    An address is host:port, or what `local_target` makes of it. Over TLS the server has to be of the ``kind``, or have
    the name in the address where that is empty. A caller that keeps a channel, or a stub, for longer than a call keeps
    one with a former certificate, which takes no more calls some time after a renewal.

    A peer that died or froze fails its calls with UNAVAILABLE within about five seconds.
    """
    return _channels().get(address, kind)


def secure_channels(certificates: Certificates, last_calls_s: float = LAST_CALLS_S) -> None:
    """Makes channels of the running loop speak TLS from now on, with certificates as they are at the time.

    A channel that is replaced takes calls for ``last_calls_s`` seconds more, and is closed when they have ended.
    """
    _channels().secure(certificates, last_calls_s)


async def close_channels() -> None:
    """Closes the running loop's channels; calls in flight are cancelled."""
    closing = _channels_by_loop.pop(asyncio.get_running_loop(), None)
    if closing is not None:
        await closing.close()


def _channels() -> Channels:
    loop = asyncio.get_running_loop()
    channels = _channels_by_loop.get(loop)
    if channels is None:
        channels = _channels_by_loop[loop] = Channels()
    return channels
