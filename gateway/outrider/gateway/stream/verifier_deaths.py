"""Decides whether the deaths of verifiers are the fault of a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from outrider.gateway.errors import FatalRequest
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.wire.frames import Finish, Frame

_ISOLATED_S = 5.0
_CONFIRM_S = 3.0
"""Seconds in which the registry drops a verifier that has died, with some to spare."""
_POLL_S = 0.1
_UNISOLATED_FACTOR = 2
"""Deaths outside isolation that end a request, as a multiple of ``limit``."""


class VerifierDeaths:
    """Counts the verifiers that died in a row while they had ``job`` and before they generated a token of it.

    A verifier whose connection broke may be behind a broken network: it is dead once ``verifiers`` no longer know it.
    One death proves nothing: all requests of a verifier are lost with it. Before the death that would be number
    ``limit``, the request takes the gateway's isolation lock, which one suspected request holds at a time, for at most
    ``isolated_s`` seconds. If a verifier dies during that time, the request ends for all its readers, by a frame that
    ``end`` gets, and its grammar is banned. Without isolation the request ends after twice ``limit`` deaths, and no
    grammar is banned. A token clears the count.
    """

    def __init__(
        self,
        job: Job,
        verifiers: Verifiers,
        end: Callable[[Frame], None],
        limit: int,
        isolated_s: float = _ISOLATED_S,
    ) -> None:
        self._job, self._verifiers, self._end = job, verifiers, end
        self._limit, self._isolated_s = limit, isolated_s
        self._lost: dict[str, bool] = {}
        self._lost_at = 0.0
        self._isolated: asyncio.TimerHandle | None = None

    def add(self, instance: str) -> bool:
        """Notes that the connection to ``instance`` broke; False if that was noted before."""
        if instance in self._lost:
            return False
        self._lost[instance] = self._isolated is not None
        self._lost_at = time.monotonic()
        self.leave_isolation()
        return True

    def clear(self) -> None:
        """Forgets all losses: a verifier generated a token."""
        self._lost.clear()
        self.leave_isolation()

    async def judge(self, seconds: float) -> None:
        """Ends the request if too many verifiers died, and else enters isolation before the last death it may cause.

        Waits at most ``seconds`` seconds for each of two things, and for neither where the next death ends nothing:
        until the registry has dropped the lost verifiers, or had the time to do so, and for the isolation lock.

        Raises:
            FatalRequest: too many verifiers died, for this reader and all others.
        """
        if not self._lost or len(self._lost) < self._limit - 1:
            return
        give_up = min(time.monotonic() + seconds, self._lost_at + _CONFIRM_S)
        while any(map(self._verifiers.find, self._lost)):
            if time.monotonic() >= give_up:
                break
            await asyncio.sleep(_POLL_S)
        self._end_if_fatal()
        if self._isolated is None and self._limit > 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._verifiers.isolation.acquire()
                loop = asyncio.get_running_loop()
                self._isolated = loop.call_later(self._isolated_s, self.leave_isolation)

    def leave_isolation(self) -> None:
        """Releases the lock for the next suspected request."""
        if self._isolated is not None:
            self._isolated.cancel()
            self._isolated = None
            self._verifiers.isolation.release()

    def _end_if_fatal(self) -> None:
        dead = [isolated for instance, isolated in self._lost.items() if self._verifiers.find(instance) is None]
        if len(dead) < (self._limit if any(dead) or self._limit == 1 else _UNISOLATED_FACTOR * self._limit):
            return
        if any(dead):
            self._verifiers.refused.ban(self._job.sampling)
        why = f"{len(dead)} verifiers in a row died with this request and gave no token of it"
        end = Frame(self._job.request_id, 0, [], [], [], Finish.ERROR, error=why)
        self._end(end)
        raise FatalRequest(why)
