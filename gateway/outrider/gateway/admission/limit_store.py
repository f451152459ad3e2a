"""The interface of a store that counts limits.

Stores are plug-ins of the group ``outrider.limit_stores``: classes that take the process's `Bus`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, Protocol

import msgspec
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Overloaded

GROUP = "outrider.limit_stores"
Clock = Callable[[], float]
"""Seconds since 1970."""

_SLOT_RETRY_S = 1.0


class Demand(msgspec.Struct, frozen=True):
    """A demand for ``amount`` units of a limit of ``owner``, which is counted in ``bucket``.

    The limit starts anew with each period of ``period_s`` seconds since 1970. If ``period_s`` is 0, units come back
    when they are settled. ``name`` is the limit's name in messages.
    """

    bucket: str
    name: str
    owner: str
    limit: int
    period_s: int
    amount: int

    def window(self, now: float) -> int:
        """The number of the period that ``now`` is in."""
        return int(now // self.period_s) if self.period_s else 0

    def reset_s(self, now: float) -> float:
        """Seconds until the next period; without periods, seconds after which another try makes sense."""
        return (self.window(now) + 1) * self.period_s - now if self.period_s else _SLOT_RETRY_S


def owner_of(bucket: str) -> str:
    """The owner of the counts in ``bucket``: its name without the last part."""
    return bucket.rpartition(".")[0]


class LimitStatus(msgspec.Struct, frozen=True):
    """The units of a limit that remain, as far as this gateway knows, and the seconds until the limit resets."""

    demand: Demand
    remaining: int
    reset_s: float


class LimitReached(Overloaded):
    """Less of a limit is left than a request demands."""

    reason: ClassVar[str] = "rate_limit_exceeded"

    def __init__(self, status: LimitStatus) -> None:
        demand, left = status.demand, max(0, status.remaining)
        seconds = max(1, math.ceil(status.reset_s))
        super().__init__(
            f"{demand.owner} has reached its limit of {demand.limit} {demand.name}: {left} left, {demand.amount} asked "
            f"for; try again in {seconds} s",
            retry_after=seconds,
        )
        self.status = status


class ReservedUnits(Protocol):
    """Units reserved of one limit."""

    def settle(self, used: int) -> None:
        """Uses up ``used`` units and releases the rest."""


class Reservation:
    """Units reserved of several limits at once, in the order of the demands."""

    def __init__(self, units: Sequence[ReservedUnits], statuses: Sequence[LimitStatus]) -> None:
        self._units = list(units)
        self.statuses = list(statuses)

    def settle(self, used: Sequence[int]) -> None:
        """Uses up ``used`` units of each limit and releases the rest at once; a second call has no effect."""
        units, self._units = self._units, []
        for each, amount in zip(units, used, strict=False):
            each.settle(amount)


class LimitStore(Protocol):
    """Counts the use of limits. Gateways that share a store enforce the limits together, exactly.

    In one bucket and period, the units that are reserved and not released never exceed the limit.
    """

    def __init__(self, bus: Bus, clock: Clock = ...) -> None:
        """A store that is reached through ``bus``; ``clock`` decides the period."""

    async def start(self) -> None:
        """Prepares the store; raises `Unavailable` if it cannot be reached."""

    async def reserve(self, demands: Sequence[Demand]) -> Reservation:
        """Reserves all of ``demands`` or none; raises `LimitReached`, or `Unavailable` without an answer."""

    async def upkeep(self) -> None:
        """Regular work; called about once a second."""

    def forget(self, owners: Collection[str]) -> None:
        """Drops the counts in the buckets of ``owners`` (`owner_of`)."""

    async def close(self) -> None:
        """Releases all unused units."""
