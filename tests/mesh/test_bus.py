"""The bus over a real nats-server."""

from __future__ import annotations

import asyncio

from outrider.mesh.bus import Bus


async def test_a_published_message_reaches_a_subscriber(bus: Bus) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe("greeting.*", lambda message: received.put_nowait(message.data))
    bus.publish("greeting.one", b"hello")
    assert await received.get() == b"hello"
