"""The one clock of a mesh: the broker's, and how far this process's own clock is from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

import msgspec
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import gauge, get_logger

BROKER_INFO = "$SYS.REQ.USER.INFO"
"""Subject on which nats-server answers each of its users, with its time."""
MOST_ERROR_S = 2.0
"""Seconds by which the clocks of processes may differ; a larger error is told in the log and to other processes."""
_EVERY_S = 10.0
_RARELY_S = 600.0
"""Longest time between two questions to a broker that does not answer them: it may be of a version that cannot."""
_WAIT_S = 1.0
"""An answer that takes longer says too little about the time."""

_error = gauge("clock_error_seconds", "This process's clock minus the broker's, when it was last asked.")
_log = get_logger("clock")


class _Server(msgspec.Struct):
    time: datetime


class _Info(msgspec.Struct):
    server: _Server


_decode = msgspec.json.Decoder(_Info).decode


class MeshClock:
    """The broker's clock, as far as it was measured; ``own`` is the clock of this process.

    Between two measurements the monotonic clock counts, so that a jump of the process's own clock does not show. Before
    the first measurement the time is that of ``own``.

    Attributes:
        error_s: the process's own clock minus the broker's, in seconds, when it was last measured.
    """

    def __init__(self, bus: Bus, own: Callable[[], float] = time.time) -> None:
        self._bus, self._own = bus, own
        self._ahead: float | None = None
        self.error_s = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self._own() if self._ahead is None else time.monotonic() + self._ahead

    @property
    def wrong(self) -> bool:
        """Whether this process's own clock is further from the broker's than clocks may differ."""
        return abs(self.error_s) > MOST_ERROR_S

    async def follow(self) -> None:
        """Measures again and again, until cancelled."""
        pause_s = _EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _EVERY_S if await self.measure() else min(2 * pause_s, _RARELY_S)

    async def measure(self) -> bool:
        """Asks the broker for its time; whether it answered within a second."""
        sent = time.monotonic()
        try:
            there = _decode(await self._bus.ask(BROKER_INFO, _WAIT_S)).server.time.timestamp()
        except (Unavailable, msgspec.MsgspecError):
            return False
        now = time.monotonic()
        if now - sent > _WAIT_S:
            return False
        self._ahead = there - (sent + now) / 2
        self._note(self._own() - self())
        return True

    def _note(self, error_s: float) -> None:
        was_wrong, self.error_s = self.wrong, error_s
        _error.set(error_s)
        if self.wrong:
            _log.warning("the clock of this host is wrong, or the broker's is", error_s=round(error_s, 1))
        elif was_wrong:
            _log.info("the clock of this host agrees with the broker's again", error_s=round(error_s, 3))
