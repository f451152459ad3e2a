"""One gateway's slice of a limit that all gateways share, and what it writes into the ledger of that limit.

`docs/decisions/0010` has the algorithm and why no interleaving lets the limit be exceeded. Nothing here waits or
sends: `outrider.gateway.admission.shared_limits` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from outrider.gateway.admission.limit_store import Demand

LEASE_S = 15.0
"""For how long what comes back (slots) is held without being renewed."""
SKEW_S = 2.0
"""By how much gateways' clocks may differ: so long a lease that has ended is left to its holder."""

_DESPAIR_S = 0.25
"""For so long after a refusal as much or more is refused unasked: clients in a hurry must not load the broker."""
_NEVER = (0, float("-inf"))
_SLICES = 64
"""A slice is at most this part of its limit: what a gateway that dies may take along, and how often it has to ask."""


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """What one gateway holds of a limit, until when, and the number of the write that said so."""

    units: int
    until: float
    serial: int


class Ledger(msgspec.Struct, frozen=True):
    """A limit as all gateways see it: what is used up in the period ``window``, and what is held."""

    window: int = 0
    spent: int = 0
    held: dict[str, Hold] = {}


@dataclass(frozen=True)
class _Change:
    """What a write does to the account if it was made."""

    reported: int
    granted: int
    until: float


@dataclass
class Account:
    """``left`` may be used, ``reserved`` is in use, ``consumed`` is used up and not yet told: their sum is held."""

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
    _doubts: dict[int, _Change] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether nothing is held."""
        return not (self.left or self.reserved or self.consumed or self._doubts)

    def take(self, demand: Demand, now: float) -> Slice | None:
        """The amount out of what is left; None where the slice has not so much, or its lease has ended."""
        self.roll(now)
        if demand.limit != self.limit or now >= self.until or self.left < demand.amount:
            return None
        self.left -= demand.amount
        self.reserved += demand.amount
        self.recent += demand.amount
        return Slice(self, self.window, demand.amount)

    def settle(self, window: int, amount: int, used: int) -> None:
        """Ends what `take` began in ``window``; in a later one that changes nothing."""
        if window == self.window:
            gone = min(used, amount) if self.period_s else 0
            self.reserved -= amount
            self.consumed += gone
            self.left += amount - gone
            self.refused = _NEVER

    def lacks(self, demand: Demand) -> bool:
        """Whether ``demand`` is more than all that is left, here and in the ledger, as far as is known."""
        return demand.amount > self.left + self.free

    def despair(self, demand: Demand, now: float) -> None:
        """Notes that ``demand`` cannot be had."""
        self.refused = demand.amount, now

    def hopeless(self, demand: Demand, now: float) -> bool:
        """Whether as much was refused a moment ago, under the same limit, and nothing came back here since."""
        amount, when = self.refused
        return demand.limit == self.limit and demand.amount >= amount and 0 <= now - when < _DESPAIR_S

    def roll(self, now: float) -> None:
        """Begins the period that ``now`` is in, if that is a later one."""
        if self.period_s and now >= (self.window + 1) * self.period_s:
            self._begin(int(now // self.period_s))

    def learn(self, ledger: Ledger) -> Ledger:
        """Takes note of the ledger as it stands, and returns it as of this account's period.

        A write of ours whose fate was unknown was made if the ledger shows it; what is not held any more is lost.
        """
        if ledger.window > self.window:
            self._begin(ledger.window)
        if ledger.window < self.window:
            self.left = 0
            return Ledger(self.window)
        mine = ledger.held.get(self.holder)
        if mine is not None and mine.serial in self._doubts:
            self._apply(mine.serial)
        elif mine is None:
            self.left = 0
        return ledger

    def ask(self, ledger: Ledger, demand: Demand, now: float) -> tuple[int, Ledger]:
        """Number and content of a write that takes what ``demand`` lacks, and somewhat more.

        Where there is not so much, it gives back what is left: others may have use for it.
        """
        self.limit = demand.limit
        room = self._room(ledger, now)
        lacks = max(0, demand.amount - self.left)
        if lacks > room:
            return self._change(ledger, -self.left, now)
        sharers = 1 + sum(hold.units > 0 for hold in self._others(ledger, now).values())
        more = min(room // (2 * sharers), self.limit // _SLICES)
        return self._change(ledger, max(lacks, more) if lacks else 0, now)

    def tend(self, ledger: Ledger, keep: int, now: float) -> tuple[int, Ledger]:
        """Number and content of a write that gives back all but ``keep`` of what is left, and renews the lease."""
        return self._change(ledger, -max(0, self.left - keep), now)

    def confirm(self, serial: int) -> None:
        """The write was made: no other that is in doubt was or will be."""
        if serial in self._doubts:
            self._apply(serial)
        self._doubts.clear()

    def refuse(self, serial: int) -> None:
        """The write was not made."""
        self._doubts.pop(serial, None)

    def _begin(self, window: int) -> None:
        self.window, self.until = window, float((window + 1) * self.period_s)
        self.left = self.reserved = self.consumed = self.recent = 0
        self.free = self.limit
        self.refused = _NEVER
        self._doubts.clear()

    def _apply(self, serial: int) -> None:
        change = self._doubts.pop(serial)
        self.consumed -= change.reported
        self.left += change.granted
        self.until = change.until

    def _others(self, ledger: Ledger, now: float) -> dict[str, Hold]:
        return {
            holder: hold
            for holder, hold in ledger.held.items()
            if holder != self.holder and (self.period_s or hold.until + SKEW_S > now)
        }

    def _room(self, ledger: Ledger, now: float) -> int:
        others = sum(hold.units for hold in self._others(ledger, now).values())
        self.free = self.limit - ledger.spent - others - self.consumed - self.reserved - self.left
        return self.free

    def _change(self, ledger: Ledger, grant: int, now: float) -> tuple[int, Ledger]:
        """What is given back is out of use before the write is sent; what is granted, in use once it was made."""
        serial = next(self.serials)
        until = float((self.window + 1) * self.period_s) if self.period_s else now + LEASE_S
        self._doubts[serial] = _Change(self.consumed, max(0, grant), until)
        units = self.left + self.reserved + grant
        self.left += min(0, grant)
        self.free -= grant
        held = self._others(ledger, now) | {self.holder: Hold(units, until, serial)}
        return serial, Ledger(self.window, ledger.spent + self.consumed, held)


@dataclass(frozen=True)
class Slice:
    """What was reserved out of an account, in one period."""

    account: Account
    window: int
    amount: int

    def settle(self, used: int) -> None:
        """As `Piece.settle`."""
        self.account.settle(self.window, self.amount, used)
