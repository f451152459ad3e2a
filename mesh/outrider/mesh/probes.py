"""The HTTP endpoint for monitoring: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable

from outrider.mesh.addresses import require_free
from outrider.mesh.telemetry import render
from outrider.mesh.telemetry.metrics import CONTENT_TYPE

_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_REQUEST_S = 5.0


class Probes:
    """A small HTTP/1.1 server, one request a connection; ``state`` returns ``ready`` when the service is ready.

    With the context ``tls`` it speaks TLS only.
    """

    def __init__(self, host: str, port: int, state: Callable[[], str], tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self._state, self._tls = state, tls
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens; `Unavailable` when the port is taken. ``port`` then holds the real one."""
        require_free(self.host, self.port)
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        status, kind, body = self._page(target.partition("?")[0])
        if method not in ("GET", "HEAD"):
            status, kind, body = 405, "application/json", b"{}"
        lines = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        lines += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return lines.encode() + (b"" if method == "HEAD" else body)

    def _page(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, CONTENT_TYPE, render()
        if path == "/healthz":
            return 200, "application/json", b'{"status":"alive"}'
        if path == "/readyz":
            state = self._state()
            return (
                200 if state == "ready" else 503,
                "application/json",
                json.dumps({"status": state}).encode(),
            )
        return 404, "application/json", b"{}"
