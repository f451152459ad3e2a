"""Server-sent events out of bytes, by the HTML standard's rules."""

from __future__ import annotations

import msgspec


class ServerEvent(msgspec.Struct, frozen=True):
    """One event; ``id`` and ``retry_ms`` are None where it does not tell them."""

    data: bytes
    id: str | None = None
    retry_ms: int | None = None


class Parser:
    """Takes a stream's bytes as they come. An event that the connection cut off is never told."""

    def __init__(self) -> None:
        self._waiting = b""
        self._lines: list[bytes] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that ``data`` completes."""
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        found: list[ServerEvent] = []
        for line in lines:
            if line := line.removesuffix(b"\r"):
                self._lines.append(line)
            elif self._lines:
                found += self._event()
        return found

    def _event(self) -> list[ServerEvent]:
        data: list[bytes] = []
        id_, retry = None, None
        for line in self._lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id" and b"\0" not in value:
                id_ = value.decode()
            elif name == b"retry" and value.isdigit():
                retry = int(value)
        self._lines = []
        return [ServerEvent(b"\n".join(data), id_, retry)] if data else []
