"""What a store of limits is: something that lets a number be used up, and never more than that.

Stores are plug-ins of the group ``outrider.limit_stores``: classes that are called with the process's `Bus`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import msgspec
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Overloaded

GROUP = "outrider.limit_stores"
Clock = Callable[[], float]
"""Seconds since 1970."""

_SLOT_RETRY_S = 1.0


class Demand(msgspec.Struct, frozen=True):
    """``amount`` of a limit that ``owner`` has.

    ``bucket`` is where the limit is counted. It holds anew for every ``period_s`` seconds since 1970; where that is 0,
    what is used comes back when it is settled.
    """

    bucket: str
    name: str
    owner: str
    limit: int
    period_s: int
    amount: int

    def window(self, now: float) -> int:
        """The period that ``now`` is in."""
        return int(now // self.period_s) if self.period_s else 0

    def reset_s(self, now: float) -> float:
        """Seconds until the next period; for what comes back, until another try makes sense."""
        return (self.window(now) + 1) * self.period_s - now if self.period_s else _SLOT_RETRY_S


class Standing(msgspec.Struct, frozen=True):
    """How much of a limit is left, as far as this gateway knows, and for how many seconds."""

    demand: Demand
    remaining: int
    reset_s: float


class LimitReached(Overloaded):
    """A limit does not have as much left as is asked for."""

    reason: ClassVar[str] = "rate_limit_exceeded"

    def __init__(self, standing: Standing) -> None:
        asked, left = standing.demand, max(0, standing.remaining)
        seconds = max(1, math.ceil(standing.reset_s))
        super().__init__(
            f"{asked.owner} has reached its limit of {asked.limit} {asked.name}: {left} left, {asked.amount} asked "
            f"for; try again in {seconds} s",
            retry_after=seconds,
        )
        self.standing = standing


class Piece(Protocol):
    """What was reserved of one limit."""

    def settle(self, used: int) -> None:
        """``used`` are used up, and the rest comes back."""


class Reservation:
    """What was reserved of several limits at once, in the order in which it was asked for."""

    def __init__(self, pieces: Sequence[Piece], standings: Sequence[Standing]) -> None:
        self._pieces = list(pieces)
        self.standings = list(standings)

    def settle(self, used: Sequence[int]) -> None:
        """Says what of each was used; the rest comes back at once. Said again, it changes nothing."""
        pieces, self._pieces = self._pieces, []
        for piece, amount in zip(pieces, used, strict=False):
            piece.settle(amount)


class LimitStore(Protocol):
    """Counts what is used of limits; all gateways that share it hold the limits together, exactly.

    For one bucket and period, what was reserved and not given back by `Reservation.settle` never exceeds the limit.
    """

    def __init__(self, bus: Bus, clock: Clock = ...) -> None:
        """A store reached through ``bus``; the clock decides which period it is."""

    async def start(self) -> None:
        """Makes ready; `Unavailable` when that cannot be."""

    async def reserve(self, demands: Sequence[Demand]) -> Reservation:
        """All of ``demands`` or none: `LimitReached`, or `Unavailable` when the store cannot tell."""

    async def upkeep(self) -> None:
        """Called about once a second."""

    async def close(self) -> None:
        """Gives back what is held and not used."""
