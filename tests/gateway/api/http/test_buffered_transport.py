"""Writes wait for the end of the loop's turn; the client may leave before."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
import uvloop
from outrider.gateway.api.http.connections import BufferedTransport


class _Lost(asyncio.Protocol):
    def __init__(self) -> None:
        self.made, self.lost = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = BufferedTransport(transport)
        self.made.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


async def _reset_by_client(faults: list[dict[str, Any]]) -> BufferedTransport:
    """The transport of a connection that its client has reset; ``faults`` gets what the loop reports."""
    loop, protocol = asyncio.get_running_loop(), _Lost()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        await protocol.made.wait()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await protocol.lost.wait()
    server.close()
    return protocol.transport


@pytest.mark.parametrize("end", [False, True], ids=["a write", "a write and the end"])
def test_a_client_that_leaves_in_mid_write_is_no_fault(end: bool) -> None:
    async def leave() -> list[dict[str, Any]]:
        faults: list[dict[str, Any]] = []
        transport = await _reset_by_client(faults)
        for _ in range(3):
            transport.write(b"x" * 100)
            await asyncio.sleep(0.01)
        transport.write(b"x" * (64 << 10))
        if end:
            transport.write_eof()
        return faults

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(leave()) == []
