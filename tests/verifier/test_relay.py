"""The relay, a slow link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from outrider.mesh.addresses import hold_port

from tests.relay import Relay
from tests.waiting import eventually


@pytest.fixture
async def relay() -> AsyncIterator[tuple[Relay, int]]:
    """A relay to a server that says what it hears, and the relay's port."""
    serving: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        await close(writer)
        serving.discard(writer)

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        relay, port = Relay(server.sockets[0].getsockname()[1], 0.001), hold_port()
        await relay.start(port)
        yield relay, port
        await relay.stop()
        await eventually(lambda: not serving)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_bytes_come_whole_and_in_order_and_so_does_the_end(relay: tuple[Relay, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay[1])
    sent = b"".join(number.to_bytes(4, "big") for number in range(50_000))
    for start in range(0, len(sent), 1000):
        writer.write(sent[start : start + 1000])
    assert await reader.readexactly(len(sent)) == sent
    assert relay[0].carried == 2 * len(sent)
    writer.write_eof()
    assert await reader.read() == b""
    await close(writer)


async def test_bytes_wait_for_as_long_as_the_link_takes(relay: tuple[Relay, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay[1])
    relay[0].one_way_s = 3600.0
    writer.write(b"late")
    waiting = asyncio.create_task(reader.read(4))
    while not relay[0].carried:
        await asyncio.sleep(0.001)
    relay[0].one_way_s = 0.0
    other, further = await asyncio.open_connection("127.0.0.1", relay[1])
    further.write(b"soon")
    assert await other.readexactly(4) == b"soon"
    assert not waiting.done()
    waiting.cancel()
    for each in (writer, further):
        await close(each)


async def test_a_connection_is_closed_if_no_server_listens_at_the_target() -> None:
    relay, port = Relay(hold_port(), 0.001), hold_port()
    await relay.start(port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    await close(writer)
    await relay.stop()
