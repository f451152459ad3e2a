"""The gRPC server of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from outrider.mesh.addresses import join, require_free
from outrider.mesh.rpc.framing import MESSAGE_BYTES
from outrider.mesh.rpc.handlers import guarded, starting
from outrider.mesh.rpc.lanes import Lanes
from outrider.mesh.rpc.reflection import add_reflection

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
)
_STATUS = health_pb2.HealthCheckResponse


class Server:
    """A grpc.aio server that listens before its service is ready.

    It is what the generated ``add_<Service>Servicer_to_server(servicer, server)`` functions take. Until
    `set_serving` health says NOT_SERVING and calls get UNAVAILABLE; reflection lists the services added. Where a path
    is given for a Unix ``socket``, it listens there as well. Lanes have a port of their own.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, socket: Path | None = None, *, lane_port: int = 0
    ) -> None:
        self.host = host
        self.port, self.lane_port = port, lane_port
        self.socket = socket
        self._router = _Router()
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._router,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    @property
    def services(self) -> list[str]:
        """Full names of the services added."""
        named = {method.split("/")[1] for method in self._router.methods}
        return sorted(named | {g.service_name() for g in self._router.generic if hasattr(g, "service_name")})

    async def start(self) -> None:
        """Listens, not serving yet; `Unavailable` when a port is taken. The ports are then the true ones."""
        await self._health.set("", _STATUS.NOT_SERVING)
        require_free(self.host, self.port)
        self.port = self._server.add_insecure_port(join(self.host, self.port))
        if self.socket is not None:
            self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        require_free(self.host, self.lane_port)
        self.lane_port = await self._router.lanes.listen(self.host, self.lane_port)

    async def set_serving(self, serving: bool) -> None:
        """Answers health checks accordingly; the first True opens the methods, which then stay open."""
        if serving and not self._router.open:
            self._enable_reflection()
            self._router.open = self._router.lanes.serve = True
        for name in ("", *self.services):
            await self._health.set(name, _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Refuses new calls and gives those in flight ``grace`` seconds."""
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(self._router.lanes.stop(grace), self._server.stop(grace))
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Adds handlers that look methods up themselves (raw bytes, say); also after the start."""
        self._router.generic += list(handlers)

    def add_registered_method_handlers(
        self, service_name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Adds a service's methods; also after the start."""
        for name, handler in handlers.items():
            self._router.add(f"/{service_name}/{name}", handler)

    def _enable_reflection(self) -> None:
        add_reflection([*self.services, health.SERVICE_NAME], self)


class _Router:
    """Looks a handler up at the time of the call, so that services may be added to a running server."""

    def __init__(self) -> None:
        self.methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self.generic: list[grpc.GenericRpcHandler[Any, Any]] = []
        self.open = False
        self._plain: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self.lanes = Lanes(self._plain)

    def add(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self.methods[method], self._plain[method] = guarded(method, handler), handler

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = details.method
        if not self.open:
            return starting(method)
        if (handler := self.methods.get(method)) is not None:
            return handler
        for generic in self.generic:
            if (found := generic.service(details)) is not None:
                self.methods[method] = guarded(method, found)
                return self.methods[method]
        return None
