"""The keys and limits of one gateway, composed from its settings."""

from __future__ import annotations

import asyncio

from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.admission.directory import Directory
from outrider.gateway.admission.limit_store import GROUP, LimitStore
from outrider.gateway.admission.memory_limits import MemoryStore
from outrider.gateway.settings import GatewaySettings
from outrider.mesh import plugins
from outrider.mesh.service import Mesh

_UPKEEP_S = 1.0


class Tenants:
    """The access control of a gateway and its stores; without ``auth = "keys"`` it admits everybody, without limits."""

    def __init__(self, mesh: Mesh, settings: GatewaySettings) -> None:
        self._tasks = mesh.tasks
        self._directory = Directory(mesh.bus, settings.keys_stale_s) if settings.auth == "keys" else None
        self._store: LimitStore = MemoryStore(mesh.bus)
        if self._directory is not None:
            self._store = plugins.load(GROUP, settings.limit_store)(mesh.bus)
        self.access = AccessControl(self._store, self._directory, settings.trusted_proxies)

    async def start(self) -> None:
        """Prepares the stores; raises `Unavailable` if NATS has no JetStream."""
        if self._directory is not None:
            await self._directory.start()
            await self._store.start()
            self._tasks.spawn(self._keep_up(), "limits")

    async def stop(self) -> None:
        """Releases the units of limits that the gateway holds."""
        if self._directory is not None:
            await self._store.close()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_S)
            await self._store.upkeep()
