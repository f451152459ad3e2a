"""The HTTP server on a port of its own, and on a shared port."""

from __future__ import annotations

import asyncio
import gc
import weakref

import httpx
import pytest
from outrider.gateway.api.http.connections import BufferedTransport
from outrider.gateway.api.http.edge import Edge
from outrider.gateway.api.http.server import HttpServer
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.waiting import eventually


async def heard(port: int) -> str:
    """The name of the server that answers a new connection."""
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{port}/")).text
    except httpx.TransportError:
        return ""


async def test_servers_that_share_a_port_both_answer_and_one_goes_on_alone() -> None:
    tasks, names = Tasks(), ("one", "other")
    one = HttpServer(PlainTextResponse("one"), "127.0.0.1", 0, share=True)
    one.start(tasks)
    other = HttpServer(PlainTextResponse("other"), "127.0.0.1", one.port, share=True)
    other.start(tasks)
    told: set[str] = set()
    while told != set(names):
        told |= set(await asyncio.gather(*(heard(one.port) for _ in range(8)))) - {""}
    await one.stop()
    for _ in range(8):
        assert await heard(other.port) == "other"
    await other.stop()


async def test_a_port_that_is_not_shared_is_taken() -> None:
    tasks = Tasks()
    one = HttpServer(PlainTextResponse("one"), "127.0.0.1", 0)
    one.start(tasks)
    assert await heard(one.port) == "one"
    for share in (False, True):
        with pytest.raises(Unavailable, match="cannot listen"):
            HttpServer(PlainTextResponse("other"), "127.0.0.1", one.port, share=share).start(tasks)
    await one.stop()


async def test_an_answer_leaves_in_one_piece_and_all_of_it_before_the_connection_is_closed() -> None:
    sizes = [10, 20, 70_000]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(sum(sizes)).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for size in sizes:
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": size != sizes[-1]})

    tasks, server = Tasks(), HttpServer(answer, "127.0.0.1", 0)
    server.start(tasks)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert (head[:12], len(body)) == (b"HTTP/1.1 200", sum(sizes))
    writer.close()
    await server.stop()


async def test_a_request_that_still_waits_when_a_server_stops_gets_503() -> None:
    asked = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await asyncio.Event().wait()

    tasks, server = Tasks(), HttpServer(answer, "127.0.0.1", 0)
    server.start(tasks)
    async with httpx.AsyncClient() as client:
        waiting = asyncio.create_task(client.get(f"http://127.0.0.1:{server.port}/"))
        await asked.wait()
        await server.stop()
        told = await waiting
    assert (told.status_code, told.headers["retry-after"]) == (503, "1")
    assert told.json()["error"]["message"] == "this gateway is about to end"


class Mark:
    """An object that a request holds."""


async def test_a_request_that_was_answered_leaves_nothing_to_collect() -> None:
    held: list[weakref.ref[Mark]] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["mark"] = mark = Mark()
        held.append(weakref.ref(mark))
        await PlainTextResponse("there")(scope, receive, send)

    tasks, server = Tasks(), HttpServer(Edge(answer), "127.0.0.1", 0)
    server.start(tasks)
    gc.disable()
    try:
        while not held:
            await heard(server.port)
        await heard(server.port)
        await eventually(lambda: held[0]() is None)
    finally:
        gc.enable()
    await server.stop()


class Written(asyncio.Transport):
    """A transport that records writes."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard.append(bytes(data))

    def close(self) -> None:
        self.heard.append(b"closed")


async def test_writes_of_one_turn_are_one_unless_they_are_many() -> None:
    written = Written()
    buffered = BufferedTransport(written)
    for data in (b"head", b"body"):
        buffered.write(data)
    assert written.heard == []
    await asyncio.sleep(0)
    buffered.write(b"more")
    buffered.write(bytes(1 << 16))
    assert [len(data) for data in written.heard] == [8, 4 + (1 << 16)]
    buffered.write(b"last")
    buffered.close()
    await asyncio.sleep(0)
    assert written.heard[2:] == [b"last", b"closed"]
