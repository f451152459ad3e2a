"""One gateway's slice of a limit that all gateways share, and its writes to the ledger of that limit.

`docs/decisions/0010` has the algorithm, and the proof that no interleaving exceeds the limit. This module does no
input or output: `outrider.gateway.admission.shared_limits` reads and writes the ledgers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from outrider.gateway.admission.limit_store import Demand

LEASE_S = 15.0
"""Seconds after which a gateway loses slots that it does not renew."""
SKEW_S = 2.0
"""Seconds by which the clocks of gateways may differ; an expired lease is respected for as long."""

_REFUSAL_S = 0.25
"""Seconds after a refusal in which equal or larger demands are refused without a write: hasty clients retry at once."""
_OTHERS = 3
"""Periods that a ledger keeps beside the one last written: enough for two groups of gateways whose clocks differ."""
_NEVER = (0, float("-inf"))
_SLICES = 64
"""A slice is at most 1/64 of its limit: a gateway that dies loses no more, and a larger slice needs fewer writes."""


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """The units of a limit that a gateway holds, the end of its lease, and the serial of the write that granted it."""

    units: int
    until: float
    serial: int


class Period(msgspec.Struct, frozen=True, array_like=True):
    """The units ``spent`` of a limit in the period ``window``, and the units held by each gateway."""

    window: int
    spent: int = 0
    held: dict[str, Holding] = {}


class LimitLedger(msgspec.Struct, frozen=True):
    """A limit as all gateways see it, in the period ``window``; the fields are those of `Period`.

    ``others`` are the periods written before, the latest first: gateways whose clocks differ count in periods of their
    own, and none of them ends the period of another.
    """

    window: int = 0
    spent: int = 0
    held: dict[str, Holding] = {}
    others: tuple[Period, ...] = ()

    def at(self, window: int) -> LimitLedger:
        """The same ledger in the period ``window``."""
        if window == self.window:
            return self
        periods = [Period(self.window, self.spent, self.held), *self.others]
        there = next((period for period in periods if period.window == window), Period(window))
        rest = [period for period in periods if period.window != window and (period.spent or period.held)]
        return LimitLedger(window, there.spent, there.held, tuple(rest[:_OTHERS]))


@dataclass(frozen=True)
class _Change:
    """The effect of a write on the account, if the write was made."""

    reported: int
    granted: int
    until: float


@dataclass
class Account:
    """One gateway's slice of one limit, in the period ``window``.

    Attributes:
        left: Units that demands may take.
        reserved: Units that unsettled demands have taken.
        consumed: Units used up and not yet written to the ledger. The gateway holds the sum of these three.
        free: Units that no gateway holds, as far as is known.
        recent: Units taken since the last upkeep.
        until: End of the lease, in seconds since 1970.
        refused: Amount and time of the last refused demand.
    """

    holder: str
    period_s: int
    serials: Iterator[int]
    window: int
    limit: int = 0
    left: int = 0
    reserved: int = 0
    consumed: int = 0
    free: int = 0
    recent: int = 0
    until: float = field(init=False)
    refused: tuple[int, float] = _NEVER
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unconfirmed: dict[int, _Change] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.until = float((self.window + 1) * self.period_s)

    @property
    def idle(self) -> bool:
        """Whether the gateway holds nothing."""
        return not (self.left or self.reserved or self.consumed or self._unconfirmed)

    def take(self, demand: Demand, now: float) -> Slice | None:
        """Takes the demanded amount out of the slice; None if too little is left, or the lease has ended."""
        if demand.limit != self.limit or now >= self.until or self.left < demand.amount:
            return None
        self.left -= demand.amount
        self.reserved += demand.amount
        self.recent += demand.amount
        return Slice(self, demand.amount)

    def settle(self, amount: int, used: int) -> None:
        """Settles what `take` took, of which ``used`` units were used."""
        spent = min(used, amount) if self.period_s else 0
        self.reserved -= amount
        self.consumed += spent
        self.left += amount - spent
        self.refused = _NEVER

    def lacks(self, demand: Demand) -> bool:
        """Whether ``demand`` exceeds all units left, in the slice and in the ledger, as far as is known."""
        return demand.amount > self.left + self.free

    def note_refusal(self, demand: Demand, now: float) -> None:
        """Notes that ``demand`` is refused."""
        self.refused = demand.amount, now

    def recently_refused(self, demand: Demand, now: float) -> bool:
        """Whether an equal or smaller demand was refused a moment ago, and no units were released here since."""
        amount, when = self.refused
        return demand.limit == self.limit and demand.amount >= amount and 0 <= now - when < _REFUSAL_S

    def over(self, now: float) -> bool:
        """Whether ``now`` is in another period."""
        return bool(self.period_s) and self.window != int(now // self.period_s)

    def must_write(self, keep: int, now: float) -> bool:
        """Whether there are units to give back or to report, or a lease to renew: a third of it is over at ``now``.

        A lease that ends later than any may is of a clock that was ahead.
        """
        if self.period_s:
            return self.left > keep or (self.over(now) and self.consumed > 0)
        return self.left > keep or not (self.idle or LEASE_S * 2 / 3 <= self.until - now <= LEASE_S)

    def learn(self, ledger: LimitLedger) -> LimitLedger:
        """Applies the ledger to this account, and returns the ledger in this account's period.

        A doubtful write of this gateway was made if the ledger shows its serial. Units that the ledger does not show as
        held are lost.
        """
        ledger = ledger.at(self.window)
        own = ledger.held.get(self.holder)
        if own is not None and own.serial in self._unconfirmed:
            self._apply(own.serial)
        elif own is None:
            self.left = 0
        return ledger

    def propose_refill(self, ledger: LimitLedger, demand: Demand, now: float) -> tuple[int, LimitLedger]:
        """Serial and content of a write that takes what ``demand`` lacks, and some units more.

        If the limit has too few units, the write gives back what is left in the slice: other gateways may need it.
        """
        self.limit = demand.limit
        room = self._room(ledger, now)
        lacks = max(0, demand.amount - self.left)
        if lacks > room:
            return self._change(ledger, -self.left, now)
        sharers = 1 + sum(hold.units > 0 for hold in self._others(ledger, now).values())
        more = min(room // (2 * sharers), self.limit // _SLICES)
        return self._change(ledger, max(lacks, more) if lacks else 0, now)

    def propose_return(self, ledger: LimitLedger, keep: int, now: float) -> tuple[int, LimitLedger]:
        """Serial and content of a write that gives back all but ``keep`` of the units left, and renews the lease."""
        return self._change(ledger, -max(0, self.left - keep), now)

    def confirm(self, serial: int) -> None:
        """Applies a write that was made: no other doubtful write was or will be made."""
        if serial in self._unconfirmed:
            self._apply(serial)
        self._unconfirmed.clear()

    def refuse(self, serial: int) -> None:
        """Drops a write that was not made."""
        self._unconfirmed.pop(serial, None)

    def _apply(self, serial: int) -> None:
        change = self._unconfirmed.pop(serial)
        self.consumed -= change.reported
        self.left += change.granted
        self.until = change.until

    def _others(self, ledger: LimitLedger, now: float) -> dict[str, Holding]:
        """What other gateways hold; a lease that has ended, or ends later than any may, is not believed."""
        return {
            holder: hold
            for holder, hold in ledger.held.items()
            if holder != self.holder and (self.period_s or -SKEW_S < hold.until - now <= LEASE_S + SKEW_S)
        }

    def _room(self, ledger: LimitLedger, now: float) -> int:
        others = sum(hold.units for hold in self._others(ledger, now).values())
        self.free = self.limit - ledger.spent - others - self.consumed - self.reserved - self.left
        return self.free

    def _change(self, ledger: LimitLedger, grant: int, now: float) -> tuple[int, LimitLedger]:
        """Units to give back leave the slice before the write is sent; granted units enter it after the write."""
        serial = next(self.serials)
        until = float((self.window + 1) * self.period_s) if self.period_s else now + LEASE_S
        self._unconfirmed[serial] = _Change(self.consumed, max(0, grant), until)
        units = self.left + self.reserved + grant
        self.left += min(0, grant)
        self.free -= grant
        held = self._others(ledger, now) | {self.holder: Holding(units, until, serial)}
        return serial, LimitLedger(self.window, ledger.spent + self.consumed, held, ledger.others)


@dataclass(frozen=True)
class Slice:
    """Units taken out of an account."""

    account: Account
    amount: int

    def settle(self, used: int) -> None:
        """As `ReservedUnits.settle`."""
        self.account.settle(self.amount, used)
