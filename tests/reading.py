"""The registry of a mesh, for reading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, Times
from outrider.mesh.rpc import close_channels


@asynccontextmanager
async def reading(url: str, times: Times = Times()) -> AsyncIterator[Registry]:  # noqa: B008 - it is immutable
    """Reads the registry of the mesh with the broker ``url`` inside the block; then closes all gRPC channels."""
    bus = Bus()
    await bus.connect(url, "test", wait_s=10)
    reader = Registry(bus, "test", "reader", times=times)
    await reader.start()
    yield reader
    reader.leave()
    await bus.close()
    await close_channels()
