"""The queue in which the frames of one job arrive."""

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
    """The source of a frame: the log, the broker, or the verifier itself."""

    LOG = "log"
    BUS = "bus"
    VERIFIER = "verifier"


class Arrival(msgspec.Struct, frozen=True):
    """A frame and its source."""

    source: Source
    frame: Frame


class VerifierLost(msgspec.Struct, frozen=True):
    """The verifier that ``follower`` read from is lost."""

    error: OutriderError
    follower: object


class LogEnd(msgspec.Struct, frozen=True):
    """All frames of the log have been read."""


InboxItem = Arrival | VerifierLost | LogEnd


class Inbox:
    """A queue with one reader, which waits for a limited time.

    One timer serves all waits: a timer for each token would cost as much as all other work on the token.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._loop, self._clock = asyncio.get_running_loop(), clock or time.monotonic
        self._items: deque[InboxItem] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._active = self._silence_s = 0.0
        self._by = inf

    @property
    def reader_waits(self) -> bool:
        """Whether the reader waits and no item has woken it."""
        return self._waiter is not None and not self._waiter.done()

    def put(self, item: InboxItem) -> None:
        """Appends ``item``."""
        self._items.append(item)
        self._wake()

    def put_first(self, items: Sequence[InboxItem]) -> None:
        """Puts ``items`` before those in the queue."""
        self._items.extendleft(reversed(items))
        self._wake()

    def note_activity(self) -> None:
        """Notes that a frame skipped the queue: the silence begins anew."""
        self._active = self._clock()

    def get_nowait(self) -> InboxItem | None:
        """The oldest item, or None."""
        return self._items.popleft() if self._items else None

    async def get(self, silence_s: float, by: float = inf) -> InboxItem | None:
        """The oldest item; None after ``silence_s`` seconds without activity, or at the time ``by``.

        ``by`` is a time of the queue's clock, and never earlier than in the call before.
        """
        if not self._items:
            self._active, self._silence_s, self._by = self._clock(), silence_s, by
            self._waiter = self._loop.create_future()
            if self._timer is None:
                self._watch()
            await self._waiter
        return self.get_nowait()

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self) -> None:
        """Wakes the reader if its time is over, and else starts the timer anew."""
        left = min(self._active + self._silence_s, self._by) - self._clock()
        self._timer = None
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._wake()
