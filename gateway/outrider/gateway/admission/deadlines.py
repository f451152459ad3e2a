"""By when a client wants what it asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import msgspec
from outrider.gateway.errors import Late

GRACE_S = 0.5
"""So long after a deadline the gateway leaves it to the verifier to say so, which knows what was computed."""


class Deadlines(msgspec.Struct, frozen=True):
    """When the first token and when the last one has to be there, on the monotonic clock; infinity for no matter."""

    first_by: float = inf
    end_by: float = inf

    @classmethod
    def within(cls, first_ms: int | None, end_ms: int | None) -> Deadlines:
        """So many milliseconds from now."""
        now = time.monotonic()
        return cls(*(inf if each is None else now + each / 1e3 for each in (first_ms, end_ms)))

    def sooner(self, seconds: float) -> Deadlines:
        """The same, with the last token within so many seconds from now at the latest."""
        return Deadlines(self.first_by, min(self.end_by, time.monotonic() + seconds))

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return min(self.first_by, self.end_by) < inf

    def due(self, begun: bool) -> float:
        """The next one, for an answer that has ``begun`` or not."""
        return self.end_by if begun else min(self.first_by, self.end_by)

    def left_ms(self, begun: bool) -> tuple[int, int]:
        """Milliseconds that are left for the first token and for the last; 0 where it is no matter."""
        now = time.monotonic()
        return _left_ms(inf if begun else self.first_by, now), _left_ms(self.end_by, now)

    def late(self, begun: bool) -> Late:
        """What is told when the next one has passed, for an answer that had ``begun`` or not."""
        if begun or self.end_by <= self.first_by:
            return Late("the answer did not end within timeout_ms", param="timeout_ms")
        return Late("the first token did not come within ttft_ms", param="ttft_ms")

    @asynccontextmanager
    async def until_first(self) -> AsyncIterator[None]:
        """Raises `Late` when the block has not ended in time for a first token."""
        due = self.due(begun=False)
        try:
            async with asyncio.timeout(None if due == inf else max(due - time.monotonic(), 0.0) + GRACE_S) as scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise self.late(begun=False) from None


def _left_ms(by: float, now: float) -> int:
    return 0 if by == inf else max(1, round((by - now) * 1e3))
