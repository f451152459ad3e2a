"""The gateway as a service."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from outrider.gateway.admission.tenants import Tenants
from outrider.gateway.api.app import make_admin_app, make_app
from outrider.gateway.api.grpc.service import Inference
from outrider.gateway.api.http.connections import Connections, most_connections
from outrider.gateway.api.http.server import HttpServer
from outrider.gateway.api.nats.callout import Callout
from outrider.gateway.api.nats.requests import NatsRequests
from outrider.gateway.observer.genai import open_genai
from outrider.gateway.observer.request_observer import Observers
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.withdrawal import Withdrawal
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.addresses import join, split
from outrider.mesh.bus import find_issuer
from outrider.mesh.config import Settings
from outrider.mesh.rpc import Server
from outrider.mesh.security import Certificates, named_files
from outrider.mesh.security.contexts import ServerContext
from outrider.mesh.service import Mesh, Service
from outrider.mesh.telemetry import get_logger, start_usage_log, stop_usage_log
from outrider.v1.inference_pb2_grpc import add_InferenceServicer_to_server

_log = get_logger("gateway")
_ENVELOPE_BYTES = 64 << 10
"""Bytes over ``max_body_bytes`` that gRPC lets in: a request that is slightly too large gets our own sentence."""


class GatewayService(Service):
    """Serves OpenAI's HTTP API, and the same over gRPC and NATS, from the mesh's tokenizers and verifiers."""

    kind: ClassVar[str] = "gateway"
    follows: ClassVar[tuple[str, ...]] = ("tokenizer", "verifier")
    lasting: ClassVar[bool] = True
    settings: ClassVar[type[GatewaySettings]] = GatewaySettings

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    async def start(self, mesh: Mesh) -> None:
        """Listens. The service counts as ready even without models; `/readyz` on the HTTP port names the models."""
        start_usage_log(self.kind, mesh.instance, self._settings.usage_log)
        certificates = _client_certificates(self._settings)
        if certificates is not None:
            mesh.tasks.spawn(certificates.follow(), "certificate of the APIs")
        self._genai = open_genai(mesh.instance, self._settings.metrics_exporter)
        observers = Observers(self._settings, self._genai)
        self._flights = Flights(mesh, self._settings, observers)
        await self._flights.open()
        self._tenants = Tenants(mesh, self._settings, observers.tenants)
        await self._tenants.start()
        withdrawal = Withdrawal(self._flights, self._tenants.access.check, mesh.tasks)
        mesh.tasks.spawn(withdrawal.run(), "withdrawal")
        app = make_app(mesh, self._flights, self._settings, self._tenants.access)
        settings = self._settings
        self._http = HttpServer(
            app,
            settings.host,
            settings.port,
            share=settings.share_port,
            bounds=settings.http_bounds,
            connections=Connections(
                most_connections(settings.max_connections),
                settings.max_connections_per_address,
                settings.trusted_proxies,
            ),
            tls=ServerContext(certificates, ["http/1.1"]).context if certificates else None,
        )
        await self._open_grpc(mesh, certificates or mesh.certificates)
        self._admin = self._open_admin(mesh, certificates) if settings.admin_address else None
        self._http.start(
            mesh.tasks
        )  # last: a gateway that cannot start takes no requests from those that share its port
        _log.info("listening", http=join(settings.host, self._http.port), grpc=join(self._grpc.host, self._grpc.port))
        self._nats = NatsRequests(mesh, self._flights, self._settings, self._tenants.access)
        self._callout = self._make_callout(mesh)
        if self._settings.nats_door:
            await self._nats.open()
            if self._callout is not None:
                await self._callout.open()

    def _make_callout(self, mesh: Mesh) -> Callout | None:
        """What admits clients to the broker; None where requests need no keys, or another admits clients."""
        issuer = find_issuer(self._settings.nats_credentials)
        if issuer is None or self._settings.auth == "none":
            return None
        return Callout(mesh.bus, mesh.tasks, self._tenants.access, issuer)

    async def _open_grpc(self, mesh: Mesh, certificates: Certificates | None) -> None:
        settings = self._settings
        host = settings.grpc_host or settings.host
        most = settings.max_body_bytes + _ENVELOPE_BYTES
        self._grpc = Server(
            host,
            settings.grpc_port,
            certificates=certificates,
            public=True,
            message_bytes=most,
            share=settings.share_port,
        )
        inference = Inference(self._flights, settings, self._tenants.access, mesh.tasks)
        add_InferenceServicer_to_server(inference, self._grpc)
        await self._grpc.start()
        await self._grpc.set_serving(True)

    def _open_admin(self, mesh: Mesh, certificates: Certificates | None) -> HttpServer:
        host, port = split(self._settings.admin_address)
        app = make_admin_app(mesh, self._settings, self._tenants.access)
        tls = ServerContext(certificates, ["http/1.1"]).context if certificates else None
        server = HttpServer(
            app, host, port, share=self._settings.share_port, bounds=self._settings.http_bounds, tls=tls
        )
        server.start(mesh.tasks)
        _log.info("the admin API listens", address=join(host, server.port))
        return server

    @property
    def _servers(self) -> list[HttpServer]:
        return [self._http, *([self._admin] if self._admin else [])]

    def rpc_port(self, settings: Settings) -> int:
        """0, since ``port`` is that of HTTP."""
        return 0

    def status(self) -> dict[str, Any]:
        """This gateway's status in the registry."""
        return {"http_port": self._http.port, "grpc_port": self._grpc.port, "load": len(self._flights)}

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Ends the tenant's streams; deletes records, frames, bills and kept answers that are older than ``before``."""
        self._tenants.forget(tenant)
        return await self._flights.erasure.erase(tenant, before)

    async def drain(self) -> None:
        """Lets balancers notice, takes no more requests, and returns when all requests have been answered."""
        if self._callout is not None:
            await self._callout.close()
        nats = asyncio.ensure_future(self._nats.drain())
        await self._leave()
        drains = (server.drain() for server in self._servers)
        await asyncio.gather(*drains, self._grpc.stop(self._settings.drain_s), nats)

    async def _leave(self) -> None:
        """Still takes connections for `leave_s`, and asks clients to open others elsewhere."""
        await self._grpc.set_serving(False)
        for server in self._servers:
            server.leave()
        await asyncio.sleep(self._settings.leave_s)

    async def stop(self) -> None:
        """Leaves running streams to other gateways; releases the ports and the units of limits."""
        self._flights.leave_all()
        stops = (server.stop() for server in self._servers)
        await asyncio.gather(*stops, self._grpc.stop(0), self._nats.stop())
        await self._tenants.stop()
        await self._flights.filtering.close()
        await asyncio.to_thread(stop_usage_log)
        if self._genai is not None:
            await asyncio.to_thread(self._genai.close)


def _client_certificates(settings: GatewaySettings) -> Certificates | None:
    """The certificate of the APIs for clients; None without one."""
    paths = {"door_certificate": settings.door_certificate, "door_key": settings.door_key}
    files = named_files("door", paths, GatewayService.kind)
    return Certificates(files) if files else None
