"""Writes to connections that are lost, on the event loops of asyncio and of services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlparse

import nats.errors
import pytest
import uvloop
from outrider.mesh.bus.transport import Transport

from tests.broker import Broker

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
def test_a_write_to_a_closed_socket_is_an_error_of_the_connection(broker: Broker, loop: Loop) -> None:
    async def write() -> None:
        transport = Transport()
        await transport.connect(urlparse(broker.url), 1024, 2)
        transport.close()
        await transport.wait_closed()
        transport.write(b"PING\r\n")
        transport.writelines([b"PING\r\n"])
        await transport.drain()

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(nats.errors.ConnectionClosedError):
        runner.run(write())


@LOOPS
def test_a_write_before_there_is_a_socket_is_an_error_of_the_connection(loop: Loop) -> None:
    async def write() -> None:
        Transport().write(b"PING\r\n")

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(nats.errors.ConnectionClosedError):
        runner.run(write())
