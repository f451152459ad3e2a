"""Messages over a stream of bytes: each begins with its length in four bytes, the highest first."""

from __future__ import annotations

import asyncio
from typing import Any, Generic

from outrider.mesh.rpc.calls import Batches, T

MESSAGE_BYTES = 64 << 20
_HEAD = 4


class Framed(asyncio.Protocol, Generic[T]):
    """One end of a connection, whose messages go to `heard`.

    What is `put` in one turn of the loop leaves in one message; while the other end does not keep up, more waits.
    A longer message than `MESSAGE_BYTES` ends the connection.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: Batches[T] = Batches()
        self._incoming = bytearray()
        self._paused = self._due = False

    def heard(self, message: bytes) -> None:
        """Takes a message; an exception ends the connection."""
        raise NotImplementedError

    def put(self, item: T) -> None:
        """Sends ``item`` soon."""
        self._outgoing.put(item)
        if not self._due:
            self._due = True
            self._loop.call_soon(self.flush)

    def send(self, message: bytes) -> None:
        """Sends one message at once, if there still is a connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(message).to_bytes(_HEAD, "big") + message)

    def flush(self) -> None:
        """Sends what waits, as far as the other end keeps up."""
        self._due = False
        while self._outgoing and not self._paused:
            self.send(self._outgoing.take())

    def connection_made(self, transport: Any) -> None:
        """Begins."""
        self._transport = transport

    def pause_writing(self) -> None:
        """The other end does not keep up."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Takes the messages that are whole."""
        self._incoming += data
        try:
            for message in self._whole():
                self.heard(message)
        except Exception:
            self.abort()
            raise

    def abort(self) -> None:
        """Ends the connection without sending what waits."""
        if self._transport is not None:
            self._transport.abort()

    def _whole(self) -> list[bytes]:
        found, start, held = [], 0, self._incoming
        while len(held) - start >= _HEAD:
            size = int.from_bytes(held[start : start + _HEAD], "big")
            if size > MESSAGE_BYTES:
                raise ValueError(f"a message of {size} bytes, more than {MESSAGE_BYTES}")
            end = start + _HEAD + size
            if end > len(held):
                break
            found.append(bytes(held[start + _HEAD : end]))
            start = end
        del held[:start]
        return found
