"""The HTTP server's own port, and one that several share."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from outrider.gateway.server import HttpServer
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from starlette.responses import PlainTextResponse

from tests.waiting import eventually


async def heard(port: int) -> str:
    """Who answers a new connection."""
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
    await eventually(lambda: one._server.started)
    for share in (False, True):
        with pytest.raises(Unavailable, match="cannot listen"):
            HttpServer(PlainTextResponse("other"), "127.0.0.1", one.port, share=share).start(tasks)
    await one.stop()
