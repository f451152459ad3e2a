"""Fewer system calls: what is written to a connection in one turn of the loop leaves together."""

from __future__ import annotations

import asyncio
from typing import Any

_MOST = 64 << 10


class Corked:
    """A ``transport`` whose writes wait for the end of the loop's turn, or for 64 KiB of them."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes ``data`` soon, behind all that was written before."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _MOST:
            self._flush()

    def write_eof(self) -> None:
        """Says that nothing follows, behind all that was written."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Ends the connection when all has been sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._transport.write(data)
