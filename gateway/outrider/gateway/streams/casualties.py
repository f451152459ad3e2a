"""Requests under which verifiers die."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from outrider.gateway.errors import Fatal
from outrider.gateway.routing.condemned import Condemned
from outrider.gateway.routing.verifiers import Job
from outrider.mesh.bus import Bus
from outrider.wire.frames import Finish, Frame, encode_frame

_ALONE_S = 5.0
"""For so long, at most, all other suspects wait for one to get a token."""
_UNCLEAR = 2
"""So many times as many deaths end a request that was not on its own at the last one."""


class Casualties:
    """Verifiers that died in a row while they had ``job``, none of which gave a token of it.

    A death alone accuses nobody: all requests of a verifier lose it. So a request that one more death would end goes to
    the next verifier on its own, by the gateway's ``ward``: a harmless one gets a token there and is cleared. A death
    at that time ends the request, and its grammar is ``condemned``. A death at another time may be anybody's fault:
    twice as many deaths end the request then, and nothing is condemned.
    """

    def __init__(self, job: Job, bus: Bus, most: int, ward: asyncio.Lock, condemned: Condemned) -> None:
        self._job, self._bus, self._most, self._ward = job, bus, most, ward
        self._condemned = condemned
        self._dead: set[str] = set()
        self._alone: asyncio.TimerHandle | None = None

    def add(self, instance: str) -> bool:
        """One more died; whether that was not known. `Fatal`, for all readers, where it is one too many."""
        if instance in self._dead:
            return False
        alone = self._alone is not None
        self.leave()
        self._dead.add(instance)
        if len(self._dead) >= (self._most if alone or self._most == 1 else _UNCLEAR * self._most):
            if alone:
                self._condemned.condemn(self._job.sampling)
            why = f"{len(self._dead)} verifiers in a row died with this request and gave no token of it"
            end = Frame(self._job.request_id, 0, [], [], [], Finish.ERROR, error=why)
            self._bus.publish(self._job.subject, encode_frame(end))
            raise Fatal(why)
        return True

    def clear(self) -> None:
        """There was a token."""
        self._dead.clear()
        self.leave()

    async def wait(self, seconds: float) -> None:
        """Returns when it may go to another verifier, or has waited for so many seconds."""
        if 0 < self._most - 1 <= len(self._dead) and self._alone is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ward.acquire()
                self._alone = asyncio.get_running_loop().call_later(_ALONE_S, self.leave)

    def leave(self) -> None:
        """Lets the next suspect go on."""
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None
            self._ward.release()
