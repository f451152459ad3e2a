"""The keys and limits of one gateway, composed from its settings."""

from __future__ import annotations

import asyncio

from outrider.gateway.abuse import Watch
from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.admission.credentials import Credentials
from outrider.gateway.admission.directory import Directory
from outrider.gateway.admission.limit_store import GROUP, LimitStore
from outrider.gateway.admission.memory_limits import MemoryStore
from outrider.gateway.identity.bearer_tokens import BearerTokens
from outrider.gateway.observer.tenant_labels import TenantLabels
from outrider.gateway.settings import GatewaySettings
from outrider.mesh import plugins
from outrider.mesh.service import Mesh

_UPKEEP_S = 1.0


class Tenants:
    """The access control of a gateway and its stores; without ``auth = "keys"`` it admits everybody, without limits."""

    def __init__(self, mesh: Mesh, settings: GatewaySettings, labels: TenantLabels) -> None:
        self._tasks = mesh.tasks
        self._directory = Directory(mesh.bus, settings.keys_stale_s) if settings.auth == "keys" else None
        self._store: LimitStore = MemoryStore(mesh.bus, mesh.clock)
        if self._directory is not None:
            self._store = plugins.load(GROUP, settings.limit_store)(mesh.bus, mesh.clock)
        self._tokens: BearerTokens | None = None
        if settings.issuers:
            self._tokens = BearerTokens(settings.issuers, settings.keys_stale_s)
        self.access = AccessControl(
            self._store,
            Credentials(self._directory, self._tokens) if self._directory else None,
            settings.trusted_proxies,
            settings.failed_authentications,
            Watch(settings.abuse),
            labels,
        )

    async def start(self) -> None:
        """Prepares the stores and follows the issuers; raises `Unavailable` if NATS has no JetStream."""
        if self._directory is not None:
            await self._directory.start()
            await self._store.start()
            self._tasks.spawn(self._keep_up(), "limits")
        for keys in self._tokens.keys if self._tokens else []:
            self._tasks.spawn(keys.follow(), "issuer")

    async def stop(self) -> None:
        """Releases the units of limits that the gateway holds, and the connections to issuers."""
        if self._directory is not None:
            await self._store.close()
        if self._tokens is not None:
            await self._tokens.close()

    def forget(self, tenant: str) -> None:
        """Drops what is cached of a tenant: its keys are asked for at once, and its counts are written no more."""
        if self._directory is not None:
            self._store.forget(self._directory.forget(tenant))

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_S)
            await self._store.upkeep()
