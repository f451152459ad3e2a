"""A transport that sends all writes of one turn of the event loop with one system call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

_FLUSH_BYTES = 64 << 10


class BufferedTransport:
    """Wraps ``transport``: writes wait for the end of the loop's turn, or until they hold 64 KiB."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes ``data`` behind earlier writes, at the end of the turn at the latest."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def write_eof(self) -> None:
        """Sends all writes, and then the end of the data where that can be sent; TLS cannot close one direction."""
        self._flush()
        with suppress(RuntimeError):  # as in `_flush`
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def close(self) -> None:
        """Sends all writes, and closes the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            with suppress(RuntimeError):  # uvloop's, for a connection that the client has broken off meanwhile
                self._transport.write(data)
