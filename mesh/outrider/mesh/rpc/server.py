"""The gRPC server of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from outrider.mesh.addresses import join, require_free
from outrider.mesh.rpc import options
from outrider.mesh.rpc.handlers import guarded_handler, starting_handler
from outrider.mesh.rpc.reflection import add_reflection

_STATUS = health_pb2.HealthCheckResponse


class Server:
    """A grpc.aio server that listens before its service is ready.

    The generated functions ``add_<Service>Servicer_to_server(servicer, server)`` take it. Until
    `set_serving` health says NOT_SERVING and calls get UNAVAILABLE; reflection lists the services added. With a path
    for a Unix ``socket``, it listens there as well.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, socket: Path | None = None) -> None:
        self.host = host
        self.port = port
        self.socket = socket
        self._router = _Router()
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=options.SERVER)
        self._server.add_generic_rpc_handlers((self._router,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    @property
    def services(self) -> list[str]:
        """Full names of the services added."""
        names = {method.split("/")[1] for method in self._router.methods}
        return sorted(names | {g.service_name() for g in self._router.generic if hasattr(g, "service_name")})

    async def start(self) -> None:
        """Listens, not serving yet; `Unavailable` when the port is taken. `port` then holds the real one."""
        await self._health.set("", _STATUS.NOT_SERVING)
        require_free(self.host, self.port)
        self.port = self._server.add_insecure_port(join(self.host, self.port))
        if self.socket is not None:
            self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """Answers health checks accordingly; the first True opens the methods, which then stay open."""
        if serving and not self._router.open:
            self._enable_reflection()
            self._router.open = True
        for name in ("", *self.services):
            await self._health.set(name, _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Refuses new calls and gives those in flight ``grace`` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
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

    def add(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self.methods[method] = guarded_handler(method, handler)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = details.method
        if not self.open:
            return starting_handler(method)
        if (handler := self.methods.get(method)) is not None:
            return handler
        for generic in self.generic:
            if (handler := generic.service(details)) is not None:
                self.methods[method] = guarded_handler(method, handler)
                return self.methods[method]
        return None
