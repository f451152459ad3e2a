"""The gRPC server of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from outrider.mesh.addresses import join, require_free
from outrider.mesh.rpc import options
from outrider.mesh.rpc.callers import Callers
from outrider.mesh.rpc.exchange import Exchanges
from outrider.mesh.rpc.handlers import Admit, guarded_handler, starting_handler
from outrider.mesh.rpc.reflection import add_reflection
from outrider.mesh.security import Certificates
from outrider.mesh.security.grpc_tls import server_credentials
from outrider.v1.calls_pb2_grpc import add_CallsServicer_to_server

_STATUS = health_pb2.HealthCheckResponse


class Server:
    """A grpc.aio server that listens before its service is ready.

    The generated functions ``add_<Service>Servicer_to_server(servicer, server)`` take it. Until
    `set_serving` health says NOT_SERVING and calls get UNAVAILABLE; reflection lists the services added. With a path
    for a Unix ``socket``, it listens there as well.

    With ``certificates`` the port speaks TLS only. Callers then need a certificate, and `outrider.mesh.rpc.callers`
    says what they may call, unless the server is ``public``; then messages may have ``message_bytes``. The socket,
    which only this user's processes can open, has neither. Processes that ``share`` a port listen on it together.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        socket: Path | None = None,
        *,
        certificates: Certificates | None = None,
        public: bool = False,
        message_bytes: int = options.MESSAGE_BYTES,
        share: bool = False,
    ) -> None:
        self.host = host
        self.port = port
        self.socket = socket
        self._certificates, self._public, self._share = certificates, public, share
        admit = None if certificates is None or public else Callers(certificates).admit
        self._router = _Router(admit)
        self._exchanges = Exchanges(self._router.unguarded, admit)
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=options.public(message_bytes, share=share) if public else options.SERVER,
            maximum_concurrent_rpcs=options.CALLS if public else None,
        )
        self._server.add_generic_rpc_handlers((self._router,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if not public:
            add_CallsServicer_to_server(self._exchanges, self)

    @property
    def services(self) -> list[str]:
        """Full names of the services added."""
        names = {method.split("/")[1] for method in self._router.methods}
        return sorted(names | {g.service_name() for g in self._router.generic if hasattr(g, "service_name")})

    async def start(self) -> None:
        """Listens, not serving yet; `Unavailable` when the port is taken. `port` then holds the real one."""
        await self._health.set("", _STATUS.NOT_SERVING)
        if not self._share:
            require_free(self.host, self.port)
        self.port = self._add_port(join(self.host, self.port))
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
        self._exchanges.stop()
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

    def _add_port(self, address: str) -> int:
        if self._certificates is None:
            return int(self._server.add_insecure_port(address))
        credentials = server_credentials(self._certificates, public=self._public)
        return int(self._server.add_secure_port(address, credentials))

    def _enable_reflection(self) -> None:
        add_reflection([*self.services, health.SERVICE_NAME], self)


class _Router:
    """Looks a handler up at the time of the call, so that services may be added to a running server."""

    def __init__(self, admit: Admit | None) -> None:
        self._admit = admit
        self.methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._unguarded: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self.generic: list[grpc.GenericRpcHandler[Any, Any]] = []
        self.open = False

    def add(self, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self.methods[method] = guarded_handler(method, handler, self._admit)
        if handler.unary_unary is not None:
            self._unguarded[method] = handler

    def unguarded(self, method: str) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._unguarded.get(method)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = details.method
        if not self.open:
            return starting_handler(method, self._admit)
        if (handler := self.methods.get(method)) is not None:
            return handler
        for generic in self.generic:
            if (handler := generic.service(details)) is not None:
                self.methods[method] = guarded_handler(method, handler, self._admit)
                return self.methods[method]
        return None
