"""Unary calls that share one long-lived connection: what is asked at the same time travels in one message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from outrider.mesh.errors import DeadlineExceeded, OutriderError, Unavailable, Unreachable
from outrider.mesh.rpc.calls import FAREWELL, PING, Call, Outcome, decode_outcomes
from outrider.mesh.rpc.framing import Framed
from outrider.mesh.telemetry import current_headers

_PING_S = 2.0
_UNHEARD = 2
"""So many pings may go unanswered before who was asked counts as lost."""


class Lane(Framed[Call]):
    """A connection to one service; when it breaks, ``ended`` is called and those who wait are told why.

    A service that does not answer pings while it is asked something is lost within seconds.
    """

    def __init__(self, ended: Callable[[Lane], None]) -> None:
        super().__init__()
        self._ended = ended
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._unheard, self._farewell = 0, False
        self._pinging: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """Whether calls can be made."""
        return self._pinging is not None and not self._farewell

    async def ask(self, method: str, data: bytes, timeout: float) -> bytes:
        """The answer of ``method``; errors as with `outrider.mesh.rpc.ask`."""
        number = next(self._numbers)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._asked[number] = future
        late = self._loop.call_later(timeout, _expire, future, method, timeout)
        self.put(Call(number, method, data, current_headers()))
        try:
            return await future
        finally:
            late.cancel()
            if self._asked.pop(number, None) is not None:
                self.put(Call(number))

    def heard(self, message: bytes) -> None:
        """Hands outcomes to those who wait for them."""
        self._unheard = 0
        if message == FAREWELL:
            self._farewell = True
        for outcome in decode_outcomes(message) if message != PING else ():
            self._tell(outcome)

    def connection_made(self, transport: Any) -> None:
        """Calls can be made from now on."""
        super().connection_made(transport)
        self._pinging = self._loop.call_later(_PING_S, self._ping)

    def connection_lost(self, error: Exception | None) -> None:
        """Tells those who wait."""
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None
        self._ended(self)
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(self._why())

    def _why(self) -> OutriderError:
        if self._farewell:
            return Unavailable("the service has ended its answers")
        lost = Unreachable("the service cannot be reached")
        lost.broke = True
        return lost

    def _tell(self, outcome: Outcome) -> None:
        future = self._asked.pop(outcome.number, None)
        if future is None or future.done():
            return
        if outcome.failure is None:
            future.set_result(outcome.data)
        else:
            future.set_exception(outcome.failure.error())

    def _ping(self) -> None:
        self._pinging = self._loop.call_later(_PING_S, self._ping)
        if not self._asked:
            self._unheard = 0
        elif self._unheard == _UNHEARD:
            self.abort()
        else:
            self._unheard += 1
            self.send(PING)


def _expire(future: asyncio.Future[bytes], method: str, seconds: float) -> None:
    if not future.done():
        future.set_exception(DeadlineExceeded(f"{method} took longer than {seconds:g} s"))
