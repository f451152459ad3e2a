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
_NEVER = (0, float("-inf"))
_SLICES = 64
"""A slice is at most 1/64 of its limit: a gateway that dies loses no more, and a larger slice needs fewer writes."""


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """The units of a limit that a gateway holds, the end of its lease, and the serial of the write that granted it."""

    units: int
    until: float
    serial: int


class LimitLedger(msgspec.Struct, frozen=True):
    """A limit as all gateways see it: units ``spent`` in the period ``window``, and units held by each gateway."""

    window: int = 0
    spent: int = 0
    held: dict[str, Holding] = {}


@dataclass(frozen=True)
class _Change:
    """The effect of a write on the account, if the write was made."""

    reported: int
    granted: int
    until: float


@dataclass
class Account:
    """One gateway's slice of one limit.

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
    window: int = 0
    limit: int = 0
    left: int = 0
    reserved: int = 0
    consumed: int = 0
    free: int = 0
    recent: int = 0
    until: float = 0.0
    refused: tuple[int, float] = _NEVER
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unconfirmed: dict[int, _Change] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether the gateway holds nothing."""
        return not (self.left or self.reserved or self.consumed or self._unconfirmed)

    def take(self, demand: Demand, now: float) -> Slice | None:
        """Takes the demanded amount out of the slice; None if too little is left, or the lease has ended."""
        self.roll(now)
        if demand.limit != self.limit or now >= self.until or self.left < demand.amount:
            return None
        self.left -= demand.amount
        self.reserved += demand.amount
        self.recent += demand.amount
        return Slice(self, self.window, demand.amount)

    def settle(self, window: int, amount: int, used: int) -> None:
        """Settles what `take` took in ``window``, of which ``used`` units were used; ignored in a later period."""
        if window == self.window:
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

    def roll(self, now: float) -> None:
        """Begins a new period if ``now`` is past the present one."""
        if self.period_s and now >= (self.window + 1) * self.period_s:
            self._begin(int(now // self.period_s))

    def learn(self, ledger: LimitLedger) -> LimitLedger:
        """Applies the ledger to this account, and returns the ledger as of this account's period.

        A doubtful write of this gateway was made if the ledger shows its serial. Units that the ledger does not show as
        held are lost.
        """
        if ledger.window > self.window:
            self._begin(ledger.window)
        if ledger.window < self.window:
            self.left = 0
            return LimitLedger(self.window)
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

    def _begin(self, window: int) -> None:
        self.window, self.until = window, float((window + 1) * self.period_s)
        self.left = self.reserved = self.consumed = self.recent = 0
        self.free = self.limit
        self.refused = _NEVER
        self._unconfirmed.clear()

    def _apply(self, serial: int) -> None:
        change = self._unconfirmed.pop(serial)
        self.consumed -= change.reported
        self.left += change.granted
        self.until = change.until

    def _others(self, ledger: LimitLedger, now: float) -> dict[str, Holding]:
        return {
            holder: hold
            for holder, hold in ledger.held.items()
            if holder != self.holder and (self.period_s or hold.until + SKEW_S > now)
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
        return serial, LimitLedger(self.window, ledger.spent + self.consumed, held)


@dataclass(frozen=True)
class Slice:
    """Units taken out of an account, in one period."""

    account: Account
    window: int
    amount: int

    def settle(self, used: int) -> None:
        """As `ReservedUnits.settle`."""
        self.account.settle(self.window, self.amount, used)
