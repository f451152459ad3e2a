"""Open connections over HTTP: how many, how they are written to, and how soon one that is gone is closed."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

from outrider.mesh.errors import Overloaded

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


_KEPT_FILES = 256
"""Open files that are left for everything but connections of clients."""
_GONE_S = 60
"""Seconds after which a connection is closed whose other end takes no data, or no longer answers the kernel."""
_PROBE_S = 15
_PROBES = 3
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_S * 1000),
)


class Connections:
    """Counts the open connections of clients: at most ``most``, and ``most_each`` from one address.

    Those of ``proxies``, networks behind which there are many clients, count toward ``most`` alone.
    """

    def __init__(self, most: int, most_each: int, proxies: Sequence[str] = ()) -> None:
        self._most, self._most_each = most, most_each
        self._proxies = [ip_network(network) for network in proxies]
        self._open = Counter[str]()

    def enter(self, address: str) -> None:
        """Counts a connection from ``address``; raises `Overloaded` if there are too many."""
        if self._open.total() >= self._most:
            raise Overloaded(f"this gateway has {self._most} connections, the most it takes: try again later")
        if self._open[address] >= self._most_each and not self._is_proxy(address):
            why = f"there are {self._most_each} connections from {address}, the most that are allowed"
            raise Overloaded(f"{why}: close some, or keep them open for several requests")
        self._open[address] += 1

    def leave(self, address: str) -> None:
        """Counts a connection from ``address`` no more."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def _is_proxy(self, address: str) -> bool:
        try:
            return any(ip_address(address) in network for network in self._proxies)
        except ValueError:
            return False


def most_connections(most: int) -> int:
    """``most``, or fewer where this process may open fewer files; raises its soft limit to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return most if hard == resource.RLIM_INFINITY else max(1, min(most, hard - _KEPT_FILES))


def notice_absence(transport: Any) -> None:
    """Has the kernel close the connection of ``transport`` if its other end is gone, or takes no data."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        for option in _SOCKET_OPTIONS:
            connection.setsockopt(*option)
