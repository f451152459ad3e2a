"""Where the frames of one request arrive, whoever brings them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from math import inf

import msgspec
from outrider.mesh.errors import OutriderError
from outrider.wire.frames import Frame


class Source(Enum):
    """Who brings frames."""

    LOG = "log"
    BUS = "bus"
    VERIFIER = "verifier"


class Arrival(msgspec.Struct, frozen=True):
    """A frame, and who brought it."""

    source: Source
    frame: Frame


class Lost(msgspec.Struct, frozen=True):
    """A verifier that could not be followed any further."""

    error: OutriderError


class Replayed(msgspec.Struct, frozen=True):
    """What was logged of the request has been brought."""


Item = Arrival | Lost | Replayed


class Inbox:
    """A queue with one reader that can also be looked through without waiting.

    One timer at a time watches over the reader's patience, whatever comes in between: a timer for each token would cost
    as much as all else that is done with it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock
        self._items: deque[Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._silence_s = 0.0
        self._by = inf

    @property
    def awaited(self) -> bool:
        """Whether the reader waits for the next item, with none on its way."""
        return self._waiter is not None and not self._waiter.done()

    def put(self, item: Item) -> None:
        """Appends; never waits."""
        self._items.append(item)
        self._wake()

    def put_first(self, items: Sequence[Item]) -> None:
        """Puts ``items`` before all that is there."""
        self._items.extendleft(reversed(items))
        self._wake()

    def heard(self) -> None:
        """Notes that something came past the queue: silence begins anew."""
        self._heard = self._clock()

    def get_nowait(self) -> Item | None:
        """The oldest item, or None."""
        return self._items.popleft() if self._items else None

    async def get(self, silence_s: float, by: float = inf) -> Item | None:
        """The oldest item; None after ``silence_s`` seconds in which nothing was heard, or at ``by`` at the latest.

        ``by`` is on the clock, from one call to the next later or the same.
        """
        if not self._items:
            self._heard, self._silence_s, self._by = self._clock(), silence_s, by
            self._waiter = self._loop.create_future()
            if self._timer is None:
                self._watch()
            await self._waiter
        return self.get_nowait()

    def drop_losses(self) -> None:
        """Forgets reports on a verifier that was left."""
        self._items = deque(item for item in self._items if not isinstance(item, Lost))

    def close(self) -> None:
        """Watches no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self) -> None:
        """Wakes the reader when it has waited long enough, and else looks again by then."""
        left = min(self._heard + self._silence_s, self._by) - self._clock()
        self._timer = None
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._wake()
