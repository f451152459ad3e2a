"""Unary calls that share one long-lived stream: what is asked at the same time travels in one message."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import grpc
from outrider.mesh.errors import DeadlineExceeded, OutriderError, Unavailable, from_rpc
from outrider.mesh.rpc.calls import METHOD, Batches, Call, decode_outcomes
from outrider.mesh.rpc.client import channel
from outrider.mesh.telemetry import current_headers


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802

    @classmethod
    def FromString(cls, data: bytes) -> Any: ...  # noqa: N802


M = TypeVar("M", bound=_Message)
_lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Lane]] = WeakKeyDictionary()


async def ask(address: str, method: str, request: _Message, answer: type[M], timeout: float) -> M:
    """The ``answer`` of ``method``, `/package.Service/Method`, at ``address`` (host:port).

    Raises what the service raised, `Unavailable` where it is not reached, `DeadlineExceeded` after ``timeout`` seconds.
    Whoever stops waiting has the call cancelled there.
    """
    lanes = _lanes.setdefault(asyncio.get_running_loop(), {})
    if address not in lanes:
        lanes[address] = Lane(address, lambda: lanes.pop(address, None))
    data = await lanes[address].ask(method, request.SerializeToString(), timeout)
    found: M = answer.FromString(data)
    return found


class Lane:
    """One stream to one service; ``ended`` is called when it breaks, and those who wait are told why."""

    def __init__(self, address: str, ended: Any) -> None:
        self._ended = ended
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._outgoing: Batches[Call] = Batches()
        self._writing: asyncio.Task[None] | None = None
        self._stream = channel(address).stream_stream(METHOD)()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, method: str, data: bytes, timeout: float) -> bytes:
        """As the function `ask`, of bytes."""
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        future: asyncio.Future[bytes] = loop.create_future()
        self._asked[number] = future
        late = loop.call_later(timeout, _expire, future, method, timeout)
        self._put(Call(number, method, data, current_headers()))
        try:
            return await future
        finally:
            late.cancel()
            if self._asked.pop(number, None) is not None:
                self._put(Call(number))

    def _put(self, call: Call) -> None:
        self._outgoing.put(call)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._outgoing:
                await self._stream.write(self._outgoing.take())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            pass  # whoever reads is told why
        finally:
            self._writing = None

    async def _read(self) -> None:
        why: OutriderError = Unavailable("the service has ended its answers")
        try:
            while (data := await self._stream.read()) is not grpc.aio.EOF:
                for outcome in decode_outcomes(data):
                    if (future := self._asked.pop(outcome.number, None)) is None or future.done():
                        continue
                    if outcome.failure is None:
                        future.set_result(outcome.data)
                    else:
                        future.set_exception(outcome.failure.error())
        except grpc.aio.AioRpcError as error:
            why = from_rpc(error)
        finally:
            self._stream.cancel()
            self._break(why)

    def _break(self, why: OutriderError) -> None:
        self._ended()
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(why)


def _expire(future: asyncio.Future[bytes], method: str, seconds: float) -> None:
    if not future.done():
        future.set_exception(DeadlineExceeded(f"{method} took longer than {seconds:g} s"))
