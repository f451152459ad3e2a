"""Turns at reading large bodies: what one tenant's bodies may cost the others, in memory and in time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from outrider.mesh.errors import Overloaded

SMALL = 64 << 10
"""Bytes up to which a body is read at once, uncounted: reading it takes a millisecond or two."""
MOST_HELD = 64 << 20
"""Bytes that the large bodies of one tenant may hold in memory at once, arriving or waiting."""
MOST_WAIT_S = 20.0
"""Seconds that a tenant's body may wait for its turn; a later one is refused."""
PAUSE = 100
"""Seconds between two large bodies of a tenant, for each second that the event loop spent with the first."""


class _Tenant:
    """What one tenant's large bodies hold, and when the next may be read."""

    def __init__(self) -> None:
        self.held = 0
        self.next = 0.0
        self.reading = asyncio.Lock()


class BodyTurns:
    """The large bodies of every tenant. All streams of a gateway share one event loop, and stand still while it parses.

    So a tenant's large bodies take at most one part in `PAUSE` of the loop's time, however slow they are to parse.
    ``clock`` gives the seconds of processor time of the loop's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._tenants = defaultdict[str, _Tenant](_Tenant)

    @contextmanager
    def arriving(self, tenant: str) -> Iterator[Arrival]:
        """One body of ``tenant`` that arrives inside the block."""
        arrival = Arrival(self._tenants[tenant], self._clock)
        try:
            yield arrival
        finally:
            arrival.leave()


class Arrival:
    """One body on its way in; made by `BodyTurns.arriving`."""

    def __init__(self, tenant: _Tenant, clock: Callable[[], float]) -> None:
        self._tenant, self._clock, self._size = tenant, clock, 0

    def grow(self, size: int) -> None:
        """The body has ``size`` bytes by now; raises `Overloaded` if the tenant's large bodies hold too much."""
        if size > SMALL:
            self._tenant.held += size - self._size
            self._size = size
            if self._tenant.held > MOST_HELD:
                raise Overloaded(f"large bodies hold more than {MOST_HELD >> 20} MiB: send fewer at once")

    async def turn(self) -> None:
        """Returns when the body may be parsed, which has to happen before the caller awaits anything.

        Raises `Overloaded` if earlier bodies of the tenant have used up the time of more than `MOST_WAIT_S` seconds.
        """
        if not self._size:
            return
        await self._tenant.reading.acquire()
        try:
            await self._wait()
        except BaseException:
            self._tenant.reading.release()
            raise
        asyncio.get_running_loop().call_soon(self._note, self._clock())

    async def _wait(self) -> None:
        left = self._tenant.next - asyncio.get_running_loop().time()
        if left > MOST_WAIT_S:
            raise Overloaded("large bodies took too long to read: send fewer, or smaller ones", retry_after=left)
        await asyncio.sleep(left)

    def leave(self) -> None:
        """The body is no longer in memory as bytes."""
        self._tenant.held -= self._size
        self._size = 0

    def _note(self, began: float) -> None:
        """Ends the turn that began at ``began`` by the clock, when the loop has parsed the body."""
        self._tenant.next = asyncio.get_running_loop().time() + PAUSE * (self._clock() - began)
        self._tenant.reading.release()
