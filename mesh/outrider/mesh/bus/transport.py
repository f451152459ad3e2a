"""The sockets of connections to NATS: a broker that is silent does not delay the end of a connection over TLS.

A lost connection is one error, `ConnectionLost`, whichever event loop runs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import ParseResult

import nats.errors
from nats.aio.transport import TcpTransport

_SHUTDOWN_S = 0.5
"""Seconds that the broker may take to end TLS; asyncio's own limit of 30 s would delay every reconnection as much."""


class ConnectionLost(nats.errors.ConnectionClosedError, ConnectionResetError, RuntimeError):
    """The socket is closed, which nats-py may not know yet.

    Callers of nats-py catch its own errors, its flusher reconnects after an `OSError`, and its pings end with a
    `RuntimeError`.
    """


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream over TLS, which has no half-open connections."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Transport(TcpTransport):
    """nats-py's transport, with a bound on the end of TLS, and `ConnectionLost` for writes to a closed socket."""

    def write(self, payload: bytes) -> None:
        """Writes ``payload``; raises `ConnectionLost`."""
        with self._losing():
            super().write(payload)  # type: ignore[no-untyped-call] # nats-py's, as those below

    def writelines(self, payload: list[bytes]) -> None:
        """Writes all parts of ``payload``; raises `ConnectionLost`."""
        with self._losing():
            super().writelines(payload)  # type: ignore[no-untyped-call]

    async def drain(self) -> None:
        """Waits until what was written is on its way; raises `ConnectionLost`."""
        with self._losing():
            await super().drain()  # type: ignore[no-untyped-call]

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Goes on over TLS on the connected socket; ``uri`` is the name that the broker's certificate has to have."""
        assert self._io_writer is not None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = _Protocol(reader)
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(
                self._io_writer.transport,
                protocol,
                ssl_context,
                server_hostname=uri if isinstance(uri, str) else uri.hostname,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        assert transport is not None
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Raises `ConnectionLost` for what asyncio and uvloop raise, and where there is no socket yet."""
        if self._io_writer is None:
            raise ConnectionLost
        try:
            yield
        except OSError as error:
            raise ConnectionLost from error
        except RuntimeError as error:  # uvloop's
            if not self._io_writer.is_closing():
                raise
            raise ConnectionLost from error
