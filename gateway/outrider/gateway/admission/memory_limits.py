"""Limits counted in the memory of one gateway; the counts are lost when the gateway ends."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outrider.gateway.admission.limit_store import Clock, Demand, LimitReached, LimitStatus, Reservation, owner_of
from outrider.mesh.bus import Bus


@dataclass
class _Count:
    used: int
    ends: float


@dataclass(frozen=True)
class _CountedUnits:
    count: _Count
    amount: int
    returns: bool

    def settle(self, used: int) -> None:
        self.count.used -= self.amount if self.returns else self.amount - min(used, self.amount)


class MemoryStore:
    """One count for each bucket and period."""

    def __init__(self, bus: Bus, clock: Clock = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, int], _Count] = {}

    async def start(self) -> None:
        """There is nothing to prepare."""

    async def reserve(self, demands: Sequence[Demand]) -> Reservation:
        """As `LimitStore.reserve`."""
        now = self._clock()
        counts = [self._count(demand, now) for demand in demands]
        for demand, count in zip(demands, counts, strict=True):
            if count.used + demand.amount > demand.limit:
                raise LimitReached(_status(demand, count, now))
        for demand, count in zip(demands, counts, strict=True):
            count.used += demand.amount
        units = [
            _CountedUnits(count, demand.amount, not demand.period_s)
            for demand, count in zip(demands, counts, strict=True)
        ]
        return Reservation(units, [_status(demand, count, now) for demand, count in zip(demands, counts, strict=True)])

    async def upkeep(self) -> None:
        """Drops the counts of past periods, and of slots that are all free."""
        now = self._clock()
        self._counts = {name: count for name, count in self._counts.items() if now < count.ends and count.used}

    def forget(self, owners: Collection[str]) -> None:
        """As `LimitStore.forget`."""
        self._counts = {name: count for name, count in self._counts.items() if owner_of(name[0]) not in owners}

    async def close(self) -> None:
        """There is nothing to release."""

    def _count(self, demand: Demand, now: float) -> _Count:
        window = demand.window(now)
        count = self._counts.get((demand.bucket, window))
        if count is None:
            ends = now + demand.reset_s(now) if demand.period_s else float("inf")
            count = self._counts[demand.bucket, window] = _Count(0, ends)
        return count


def _status(demand: Demand, count: _Count, now: float) -> LimitStatus:
    return LimitStatus(demand, demand.limit - count.used, demand.reset_s(now))
