"""HTTP as the gateway needs it: bodies of bounded size, streams of events, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from outrider.gateway.errors import TimedOut, TooLarge
from outrider.mesh.errors import InvalidRequest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
_BODY_S = 60.0
_ON_DISCONNECT = "x-outrider-on-disconnect"


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body; `TooLarge` for more than ``limit`` bytes, `ClientDisconnect` when it never comes whole."""
    too_large = TooLarge(f"the body is larger than {limit} bytes")
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(_BODY_S):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise TimedOut(f"the body did not arrive within {_BODY_S:g} s") from None
    return bytes(body)


def stays(request: Request) -> bool:
    """Whether the generation is to go on for a while when its reader leaves; `InvalidRequest` for an unknown wish."""
    wish = request.headers.get(_ON_DISCONNECT, "cancel")
    if wish not in ("cancel", "continue"):
        raise InvalidRequest(f"{_ON_DISCONNECT} must be cancel or continue, not {wish[:40]!r}", param=_ON_DISCONNECT)
    return wish == "continue"


def json_response(value: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``value`` as a JSON answer."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Result of ``work``; `ClientDisconnect` when the client leaves first, and ``work`` is then cancelled.

    The request's body must have been read: nobody else may wait on ``receive``.
    """
    worker = asyncio.current_task()
    assert worker is not None
    watcher = asyncio.create_task(_disconnected(receive, worker))
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.done() and worker.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()


async def _disconnected(receive: Receive, worker: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    worker.cancel()


class EventStream(Response):
    """Server-sent events; ``end`` is called when the last was sent or the client has left."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._end = events, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events as they come."""
        try:
            await until_gone(receive, self._send(send))
        finally:
            await self._end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._events) as events:
            async for data in events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
