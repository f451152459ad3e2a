"""The sockets of connections to NATS: a broker that is silent does not delay the end of a connection over TLS."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

_SHUTDOWN_S = 0.5
"""Seconds that the broker may take to end TLS; asyncio's own limit of 30 s would delay every reconnection as much."""


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream over TLS, which has no half-open connections."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Transport(TcpTransport):
    """nats-py's transport, with a bound on the end of TLS."""

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
