"""Decides whether the deaths of verifiers are the fault of a request."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from outrider.gateway.errors import FatalRequest
from outrider.gateway.routing.banned_grammars import BannedGrammars
from outrider.gateway.routing.job import Job
from outrider.mesh.bus import Bus
from outrider.wire.frames import Finish, Frame, encode_frame

_ISOLATED_S = 5.0
_UNISOLATED_FACTOR = 2
"""Deaths outside isolation that end a request, as a multiple of ``limit``."""


class VerifierDeaths:
    """Counts the verifiers that died in a row while they had ``job`` and before they generated a token of it.

    One death proves nothing: all requests of a verifier are lost with it. Before the death that would be number
    ``limit``, the request takes the gateway's ``isolation`` lock, which one suspected request holds at a time, for at
    most ``isolated_s`` seconds. If a verifier dies during that time, the request ends and its grammar is ``banned``.
    Without isolation the request ends after twice ``limit`` deaths, and no grammar is banned. A token clears the count.
    """

    def __init__(
        self,
        job: Job,
        bus: Bus,
        limit: int,
        isolation: asyncio.Lock,
        banned: BannedGrammars,
        isolated_s: float = _ISOLATED_S,
    ) -> None:
        self._job, self._bus, self._limit = job, bus, limit
        self._isolation, self._banned, self._isolated_s = isolation, banned, isolated_s
        self._dead: set[str] = set()
        self._isolated: asyncio.TimerHandle | None = None

    def add(self, instance: str) -> bool:
        """Counts the death of ``instance``; False if it was counted before.

        The death that ends the request raises `FatalRequest`, for this reader and all others.
        """
        if instance in self._dead:
            return False
        isolated = self._isolated is not None
        self.leave_isolation()
        self._dead.add(instance)
        if len(self._dead) >= (self._limit if isolated or self._limit == 1 else _UNISOLATED_FACTOR * self._limit):
            if isolated:
                self._banned.ban(self._job.sampling)
            self._end()
        return True

    def clear(self) -> None:
        """Forgets all deaths: a verifier generated a token."""
        self._dead.clear()
        self.leave_isolation()

    async def isolate(self, seconds: float) -> None:
        """Enters isolation if the next death would be number ``limit``; waits at most ``seconds`` for the lock."""
        if 0 < self._limit - 1 <= len(self._dead) and self._isolated is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._isolation.acquire()
                loop = asyncio.get_running_loop()
                self._isolated = loop.call_later(self._isolated_s, self.leave_isolation)

    def leave_isolation(self) -> None:
        """Releases the lock for the next suspected request."""
        if self._isolated is not None:
            self._isolated.cancel()
            self._isolated = None
            self._isolation.release()

    def _end(self) -> None:
        why = f"{len(self._dead)} verifiers in a row died with this request and gave no token of it"
        end = Frame(self._job.request_id, 0, [], [], [], Finish.ERROR, error=why)
        self._bus.publish(self._job.subject, encode_frame(end))
        raise FatalRequest(why)
