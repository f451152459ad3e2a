"""A slow link: passes a TCP connection's bytes on after a fixed time, in both directions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast


class Relay:
    """Listens on ``port`` of this machine and passes all bytes on to ``target``.

    The relay delays bytes and does not limit their rate, as a long line does. Connections open without a delay.

    Args:
        target: port of this machine.
        one_way_s: seconds of delay in each direction; a change holds for later bytes.
    """

    def __init__(self, target: int, one_way_s: float) -> None:
        self.target, self.one_way_s = target, one_way_s
        self.carried = 0
        self.open: set[asyncio.Transport] = set()

    async def start(self, port: int) -> None:
        """Starts accepting connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Caller(self), "127.0.0.1", port)

    async def stop(self) -> None:
        """Stops accepting connections, and aborts the open ones."""
        self._server.close()
        while self.open:
            for transport in self.open:
                transport.abort()
            await asyncio.sleep(0)


class _End(asyncio.Protocol):
    """One end of a connection; writes its bytes to the other end after the delay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._late: deque[Callable[[], object]] = deque()
        self._gone = False
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._relay.open.add(self._transport)
        for data in self._early:
            self._transport.write(data)
        if self._gone:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._relay.carried += len(data)
        self._later(partial(self._pass_on, data))

    def connection_lost(self, error: Exception | None) -> None:
        self._relay.open.discard(cast(asyncio.Transport, self._transport))
        self._later(partial(self._pass_on, None))

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._gone = True
        if self._transport is not None:
            self._transport.close()

    def _pass_on(self, data: bytes | None) -> None:
        if self.other is not None:
            self.other.close() if data is None else self.other.write(data)

    def _later(self, call: Callable[[], object]) -> None:
        """Runs calls in order, even if timers that are due together fire out of order."""
        self._late.append(call)
        asyncio.get_running_loop().call_later(self._relay.one_way_s, lambda: self._late.popleft()())


class _Caller(_End):
    """The end that accepted a connection; connects to the target."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.other = target = _End(self._relay)
        target.other = self
        self._connecting = asyncio.ensure_future(self._connect(target))

    async def _connect(self, target: _End) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: target, "127.0.0.1", self._relay.target)
        except OSError:
            self.close()
