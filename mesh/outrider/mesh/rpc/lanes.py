"""The services' end of lanes: each call runs by itself, and outcomes go back as they come, together where they can."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import grpc
from outrider.mesh.errors import Internal, NotFound, OutriderError, Unavailable, from_rpc
from outrider.mesh.rpc.calls import FAREWELL, PING, Call, Failure, Outcome, decode_calls
from outrider.mesh.rpc.framing import Framed
from outrider.mesh.telemetry import continued, get_logger, tracing

_log = get_logger("rpc")
_KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds after which callers whose host is gone are noticed, and how often it is asked: tcp(7)."""

Methods = Mapping[str, Any]


class Lanes:
    """Serves the unary ones of ``methods`` on connections that callers keep open, once they ``serve``."""

    def __init__(self, methods: Methods) -> None:
        self.methods, self.serve = methods, False
        self.open: set[Served] = set()
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Begins; the true port. `OSError` when it is taken."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Served(self), host, port)
        return int(self._listening.sockets[0].getsockname()[1])

    async def stop(self, grace: float) -> None:
        """Takes no more lanes; each ends when what was asked on it is answered, or ``grace`` seconds have passed."""
        if self._listening is not None:
            self._listening.close()
        for lane in list(self.open):
            lane.drain()
        if self.open:
            await asyncio.wait([lane.closed for lane in self.open], timeout=grace)
        for lane in list(self.open):
            lane.abort()


class Served(Framed[Outcome]):
    """One caller's lane."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__()
        self._lanes = lanes
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._draining = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: Any) -> None:
        """A caller has come."""
        super().connection_made(transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._lanes.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """What the caller asked nobody wants any more."""
        self._lanes.open.discard(self)
        for task in self._answering.values():
            task.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def drain(self) -> None:
        """Ends when what was asked is answered."""
        self._draining = True
        if not self._answering:
            self.flush()
            self.send(FAREWELL)
            if self._transport is not None:
                self._transport.close()

    def heard(self, message: bytes) -> None:
        """Begins to answer calls, and gives up those that nobody waits for."""
        if message == PING:
            return self.send(PING)
        for call in decode_calls(message):
            if call.method:
                made = self._answering[call.number] = self._loop.create_task(self._answer(call))
                made.add_done_callback(partial(self._on_answered, call.number))
            elif (task := self._answering.get(call.number)) is not None:
                task.cancel()

    async def _answer(self, call: Call) -> None:
        try:
            with continued(call.headers, call.method) if tracing() else nullcontext():
                self.put(Outcome(call.number, await self._result(call)))
        except OutriderError as error:
            self.put(Outcome(call.number, b"", Failure.of(error)))
        except grpc.aio.AioRpcError as error:
            self.put(Outcome(call.number, b"", Failure.of(from_rpc(error))))
        except Exception:
            _log.exception("a handler failed", method=call.method)
            self.put(Outcome(call.number, b"", Failure.of(Internal())))

    def _on_answered(self, number: int, task: asyncio.Task[None]) -> None:
        """Forgets a call that has ended, be it before it began."""
        self._answering.pop(number, None)
        if self._draining:
            self.drain()

    async def _result(self, call: Call) -> bytes:
        if not self._lanes.serve:
            raise Unavailable("the service is starting", retry_after=1.0)
        handler = self._lanes.methods.get(call.method)
        if handler is None or handler.unary_unary is None:
            raise NotFound(f"{call.method} is no method that can be called here")
        response = await handler.unary_unary(handler.request_deserializer(call.data), _Context())
        return bytes(handler.response_serializer(response))


class _Context:
    """What handlers are told of a call on a lane: its caller sets no deadline, but gives up."""

    def time_remaining(self) -> float | None:
        """There is no deadline."""
        return None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """There is none."""
        return ()


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
