"""Where the frames of one request arrive, whoever brings them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum

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
    """A queue with one reader that can also be looked through without waiting."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._news = asyncio.Event()

    def put(self, item: Item) -> None:
        """Appends; never waits."""
        self._items.append(item)
        self._news.set()

    def put_first(self, items: Sequence[Item]) -> None:
        """Puts ``items`` before all that is there."""
        self._items.extendleft(reversed(items))
        self._news.set()

    def get_nowait(self) -> Item | None:
        """The oldest item, or None."""
        return self._items.popleft() if self._items else None

    async def get(self, timeout: float) -> Item | None:
        """The oldest item; None after ``timeout`` seconds without one."""
        if not self._items:
            self._news.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._items.popleft()

    def drop_losses(self) -> None:
        """Forgets reports on a verifier that was left."""
        self._items = deque(item for item in self._items if not isinstance(item, Lost))
