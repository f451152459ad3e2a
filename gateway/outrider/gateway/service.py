"""The gateway as a service: HTTP in front, the mesh behind."""

from __future__ import annotations

from typing import Any, ClassVar

from outrider.gateway.app import make_app
from outrider.gateway.flights import Flights
from outrider.gateway.server import HttpServer
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.tenants import Tenants
from outrider.mesh.config import Settings
from outrider.mesh.service import Mesh, Service


class GatewayService(Service):
    """Serves OpenAI's HTTP API from the mesh's tokenizers and verifiers."""

    kind: ClassVar[str] = "gateway"
    settings: ClassVar[type[GatewaySettings]] = GatewaySettings

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    async def start(self, mesh: Mesh) -> None:
        """Listens; it is ready whether models are there or not: `/readyz` on the HTTP port tells."""
        self._flights = Flights(mesh, self._settings)
        await self._flights.open()
        self._tenants = Tenants(mesh, self._settings)
        await self._tenants.start()
        app = make_app(self._flights, self._settings, self._tenants.guarded)
        self._http = HttpServer(app, self._settings.host, self._settings.port)
        self._http.start(mesh.tasks)

    def rpc_port(self, settings: Settings) -> int:
        """``port`` is that of HTTP."""
        return 0

    def status(self) -> dict[str, Any]:
        """What the registry tells of this gateway."""
        return {"http_port": self._http.port, "load": len(self._flights)}

    async def drain(self) -> None:
        """Ends the streams in flight."""
        await self._http.drain()

    async def stop(self) -> None:
        """Lets go of the port, and of what is held of limits."""
        await self._http.stop()
        await self._tenants.stop()
