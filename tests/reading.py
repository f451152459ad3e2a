"""The registry of a mesh, as one who only looks sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, Times
from outrider.mesh.rpc import close_channels


@asynccontextmanager
async def reading(url: str, times: Times = Times()) -> AsyncIterator[Registry]:  # noqa: B008 - it is immutable
    """The registry of the mesh whose broker is at ``url``; closes all channels of gRPC behind it."""
    bus = Bus()
    await bus.connect(url, "test", wait_s=10)
    reader = Registry(bus, "test", "reader", times=times)
    await reader.start()
    yield reader
    reader.leave()
    await bus.close()
    await close_channels()
