"""Deadlines that clients set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import msgspec
from outrider.gateway.errors import DeadlinePassed

_GRACE_S = 0.5
"""Seconds after a deadline in which the verifier, which knows what was computed, may report it first."""


class Deadlines(msgspec.Struct, frozen=True):
    """When a client wants the first and the last token, in seconds of the monotonic clock; infinity is no deadline."""

    first_by: float = inf
    end_by: float = inf

    @classmethod
    def within(cls, first_ms: int | None, end_ms: int | None) -> Deadlines:
        """Deadlines ``first_ms`` and ``end_ms`` milliseconds from now; None is no deadline."""
        now = time.monotonic()
        return cls(*(inf if each is None else now + each / 1e3 for each in (first_ms, end_ms)))

    def sooner(self, seconds: float) -> Deadlines:
        """These deadlines, with the last token at most ``seconds`` from now."""
        return Deadlines(self.first_by, min(self.end_by, time.monotonic() + seconds))

    @property
    def any(self) -> bool:
        """Whether there is a deadline."""
        return min(self.first_by, self.end_by) < inf

    def due(self, begun: bool) -> float:
        """The next deadline; ``begun`` says whether the answer has its first token."""
        return self.end_by if begun else min(self.first_by, self.end_by)

    def expires_at(self, begun: bool) -> float:
        """When the gateway itself ends the request: a grace after the next deadline."""
        return self.due(begun) + _GRACE_S

    def left_ms(self, begun: bool) -> tuple[int, int]:
        """Milliseconds left for the first and for the last token, at least 1; 0 is no deadline."""
        now = time.monotonic()
        return _left_ms(inf if begun else self.first_by, now), _left_ms(self.end_by, now)

    def passed(self, begun: bool) -> DeadlinePassed:
        """The error for a request whose next deadline has passed."""
        if begun or self.end_by <= self.first_by:
            return DeadlinePassed("the answer did not end within timeout_ms", param="timeout_ms")
        return DeadlinePassed("the first token did not come within ttft_ms", param="ttft_ms")

    @asynccontextmanager
    async def until_first(self) -> AsyncIterator[None]:
        """Raises `DeadlinePassed` if the block does not end in time for a first token."""
        due = self.due(begun=False)
        try:
            async with asyncio.timeout(None if due == inf else max(due - time.monotonic(), 0.0) + _GRACE_S) as scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise self.passed(begun=False) from None


NO_DEADLINES = Deadlines()


def _left_ms(by: float, now: float) -> int:
    return 0 if by == inf else max(1, round((by - now) * 1e3))
