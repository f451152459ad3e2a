"""Services in the process of the tests, for what only their inside shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.mesh.bus import Bus
from outrider.mesh.config import Settings
from outrider.mesh.registry import Registry, State
from outrider.mesh.rpc import Server
from outrider.mesh.service import Mesh, Service
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import Telemetry


@asynccontextmanager
async def serving(service_type: type[Service], settings: Settings) -> AsyncIterator[Registry]:
    """A service of this process with the ``settings``, ready; its registry. Callers close channels behind it."""
    kind, tasks = service_type.kind, Tasks()
    bus, server = Bus(tasks), Server()
    await bus.connect(settings.nats_url, kind, wait_s=10)
    await server.start()
    service = service_type(settings)
    registry = Registry(bus, kind, f"{kind}-here", service.status, tasks)
    await service.start(Mesh(f"{kind}-here", settings, bus, server, registry, Telemetry(None), tasks))
    await server.set_serving(True)
    registry.address = f"{server.host}:{server.port}"
    await registry.start()
    registry.set_state(State.READY)
    try:
        yield registry
    finally:
        registry.leave()
        await service.drain()
        await server.stop(0)
        await service.stop()
        await tasks.cancel()
        await bus.close()
