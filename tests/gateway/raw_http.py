"""A gateway's HTTP server in this process, and connections to it for raw bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from outrider.gateway.api.http.edge import Edge
from outrider.gateway.api.http.messages import read_body
from outrider.gateway.api.http.server import HttpServer
from outrider.gateway.settings import Bounds
from outrider.mesh.tasks import Tasks
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the headers and the body of the request."""
    request = Request(scope, receive)
    body = await read_body(request, 1 << 20) if scope["method"] == "POST" else b""
    told = {"headers": [name.decode() for name, _ in scope["headers"]], "body": body.decode()}
    await JSONResponse(told)(scope, receive, send)


class Answer:
    """One answer: its status, headers and body, which is all that follows if it has no length."""

    def __init__(self, data: bytes) -> None:
        head, _, self.rest = data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        self.status = int(line.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        size = int(self.headers.get("content-length", len(self.rest)))
        self.body, self.rest = self.rest[:size], self.rest[size:]

    @property
    def json(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


class Client:
    """A connection for raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader, self._writer, self._port = reader, writer, port

    async def again(self) -> Client:
        """Another connection to the same server."""
        return Client(*await asyncio.open_connection("127.0.0.1", self._port), self._port)

    async def send(self, *parts: bytes) -> None:
        """Sends ``parts`` one after the other, until the gateway closes the connection."""
        with suppress(ConnectionError):
            for part in parts:
                self._writer.write(part)
                await self._writer.drain()

    async def answers(self) -> list[Answer]:
        """All bytes that the gateway sends before it closes the connection."""
        data, found = b"", list[Answer]()
        with suppress(ConnectionError):
            async with asyncio.timeout(30):
                while part := await self._reader.read(1 << 16):
                    data += part
        while data:
            found.append(Answer(data))
            data = found[-1].rest
        return found

    async def answer(self) -> Answer:
        """The only answer."""
        (answer,) = await self.answers()
        return answer

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def served(bounds: Bounds | None = None, app: Any = tell, **options: Any) -> AsyncIterator[Client]:
    """A connection to a gateway's server."""
    bounds = bounds or Bounds()
    tasks, server = Tasks(), HttpServer(Edge(app, bounds.body_idle_s), "127.0.0.1", 0, bounds=bounds, **options)
    server.start(tasks)
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port), server.port)
    try:
        yield client
    finally:
        client.close()
        await server.stop()
