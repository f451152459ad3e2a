"""Runs uvicorn as a task of the gateway's event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, nullcontext
from functools import partial

import uvicorn
from outrider.gateway.api.http.connections import Connections
from outrider.gateway.api.http.protocol import Protocol
from outrider.gateway.settings import Bounds
from outrider.mesh.addresses import require_free
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from starlette.types import ASGIApp

_BACKLOG = 2048
_LAST_WORDS_S = 0.5
_KEEP_ALIVE_S = 75  # longer than proxies in front of the gateway keep idle connections


class HttpServer:
    """Serves ``app`` on ``host`` and ``port`` until it is stopped.

    The kernel distributes new connections among processes that ``share`` a port. ``bounds`` are those of requests,
    ``connections`` bounds the number of connections.
    A connection without a request is closed after ``keep_alive_s`` seconds. With ``tls`` the port speaks TLS only.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        share: bool = False,
        bounds: Bounds | None = None,
        connections: Connections | None = None,
        keep_alive_s: float = _KEEP_ALIVE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host, self.port, self._share = host, port, share
        config = uvicorn.Config(
            app,
            loop="none",
            http=partial(  # type: ignore[arg-type] # it makes protocols
                Protocol, bounds=bounds or Bounds(), connections=connections or Connections(_BACKLOG, _BACKLOG)
            ),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `AccessControl` reads them, by the setting trusted_proxies
            timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type] # fractions of a second too
            backlog=_BACKLOG,
        )
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._server.capture_signals = nullcontext  # type: ignore[method-assign,assignment] # the process's lifecycle handles signals

    def start(self, tasks: Tasks) -> None:
        """Listens, and sets ``port`` to the real port; raises `Unavailable` if the port is taken."""
        listener = self._listen()
        self.port = listener.getsockname()[1]
        self._serving = tasks.spawn(self._server.serve([listener]), "http server")

    def leave(self) -> None:
        """Has every answer close its connection from now on."""
        header = (b"connection", b"close")
        self._server.config.encoded_headers.append(header)  # of which uvicorn makes default_headers anew each second
        self._server.server_state.default_headers.append(header)

    async def drain(self) -> None:
        """Accepts no new connections, and returns when the last answer has been sent."""
        self._server.should_exit = True
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Breaks off the answers that do not end at once, and answers requests without an answer with 503."""
        self._server.should_exit = True
        if self._server.server_state.tasks:
            await asyncio.wait(list(self._server.server_state.tasks), timeout=_LAST_WORDS_S)
        self._server.force_exit = True
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, Protocol):
                connection.give_up()
        answering = list(self._server.server_state.tasks)
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        await asyncio.wait({self._serving})

    def _listen(self) -> socket.socket:
        if not self._share:
            require_free(self._host, self.port)
        try:
            family, kind, _, _, address = socket.getaddrinfo(self._host, self.port, type=socket.SOCK_STREAM)[0]
            with ExitStack() as stack:
                listener = stack.enter_context(socket.socket(family, kind))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if self._share:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind(address)
                listener.listen(_BACKLOG)
                stack.pop_all()
        except OSError as error:
            raise Unavailable(f"cannot listen on {self._host}:{self.port}: {error.strerror}") from None
        return listener
