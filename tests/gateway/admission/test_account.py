"""Slices of one limit on a faulty broker: writes are refused, lost, late, or made and unanswered."""

from __future__ import annotations

import itertools
import random

import pytest
from outrider.gateway.admission.account import LEASE_S, SKEW_S, Account, LimitLedger, Slice

from tests.gateway.admission.limits import DAY, streams, tokens

PERIOD_S, LIMIT = 60, 1000


class FaultyBroker:
    """A ledger, the accounts of gateways that share it, and writes that are late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 20_000.0 * DAY
        self.ledger, self.revision = LimitLedger(), 0
        self.late: list[tuple[int, LimitLedger]] = []
        serials = itertools.count(1)
        self.accounts = [Account(f"gateway-{n}", PERIOD_S, serials) for n in range(3)]
        self.in_use: list[Slice] = []
        self.used: dict[int, int] = {}

    def step(self) -> None:
        """Makes one random event happen."""
        account = self.chance.choice(self.accounts)
        what = self.chance.choices(
            [self.reserve, self.settle, self.tend, self.arrive, self.tick, self.die], [50, 30, 10, 8, 2, 1]
        )[0]
        what(account)
        assert all(used <= LIMIT for used in self.used.values()), self.used

    def reserve(self, account: Account) -> None:
        demand = tokens("", self.chance.randint(1, 60), LIMIT, PERIOD_S)
        piece = account.take(demand, self.now)
        if piece is None:
            ledger = account.learn(self.ledger)
            self.write(account, *account.propose_refill(ledger, demand, self.now))
            piece = account.take(demand, self.now)
        if piece is not None:
            self.in_use.append(piece)
            self.used[piece.window] = self.used.get(piece.window, 0) + piece.amount

    def settle(self, account: Account) -> None:
        if self.in_use:
            piece = self.in_use.pop(self.chance.randrange(len(self.in_use)))
            used = self.chance.randint(0, piece.amount)
            piece.settle(used)
            self.used[piece.window] -= piece.amount - used

    def tend(self, account: Account) -> None:
        account.roll(self.now)
        ledger = account.learn(self.ledger)
        self.write(account, *account.propose_return(ledger, self.chance.choice([0, 20]), self.now))

    def write(self, account: Account, serial: int, ledger: LimitLedger) -> None:
        """The write is made and answered, made and unanswered, lost, or late."""
        fate = self.chance.choices(["answered", "unanswered", "lost", "late"], [70, 10, 10, 10])[0]
        if fate == "late":
            self.late.append((self.revision, ledger))
        if fate in ("answered", "unanswered"):
            self.ledger, self.revision = ledger, self.revision + 1
        if fate == "answered":
            account.confirm(serial)

    def arrive(self, account: Account) -> None:
        """A late write arrives; it is made if no other was made since it was sent."""
        if self.late:
            base, ledger = self.late.pop(self.chance.randrange(len(self.late)))
            if base == self.revision:
                self.ledger, self.revision = ledger, self.revision + 1

    def tick(self, account: Account) -> None:
        self.now += self.chance.choice([1, 20, 60])

    def die(self, account: Account) -> None:
        """Replaces a gateway, which loses its state, by a new one."""
        place = self.accounts.index(account)
        self.in_use = [piece for piece in self.in_use if piece.account is not account]
        self.accounts[place] = Account(f"gateway-{self.chance.random()}", PERIOD_S, itertools.count(1))


@pytest.mark.parametrize("seed", range(60))
def test_no_period_ever_exceeds_its_limit_whatever_becomes_of_writes_and_gateways(seed: int) -> None:
    broker = FaultyBroker(seed)
    for _ in range(400):
        broker.step()
    assert max(broker.used.values()) > LIMIT / 4


def test_a_write_that_was_made_and_not_answered_is_counted_once() -> None:
    account, demand, now = Account("one", PERIOD_S, itertools.count(1)), tokens("", 1, 10, PERIOD_S), 600.0
    account.take(demand, now)
    _, written = account.propose_refill(account.learn(LimitLedger()), demand, now)
    assert account.take(demand, now) is None
    account.learn(written)
    assert account.take(demand, now) is not None
    assert account.take(demand, now) is None


def test_a_lease_that_has_ended_is_left_alone_for_as_long_as_clocks_may_differ() -> None:
    serials = itertools.count(1)
    one, other, demand, now = Account("one", 0, serials), Account("other", 0, serials), streams("", 1, 1), 600.0
    serial, ledger = one.propose_refill(one.learn(LimitLedger()), demand, now)
    one.confirm(serial)
    assert one.take(demand, now + LEASE_S) is None
    for later, free in [(LEASE_S, 0), (LEASE_S + SKEW_S, 1)]:
        serial, written = other.propose_refill(other.learn(ledger), demand, now + later)
        assert other.free + written.held["other"].units == free
        other.refuse(serial)


def test_a_gateway_whose_clock_is_behind_takes_the_period_that_others_are_in() -> None:
    serials = itertools.count(1)
    ahead, behind, demand = Account("a", PERIOD_S, serials), Account("b", PERIOD_S, serials), tokens("", 10, 10)
    ahead.roll(6000.0)
    serial, ledger = ahead.propose_refill(ahead.learn(LimitLedger()), demand, 6000.0)
    ahead.confirm(serial)
    assert ahead.take(demand, 6000.0) is not None
    behind.roll(5999.0)
    serial, ledger = behind.propose_refill(behind.learn(ledger), demand, 5999.0)
    behind.confirm(serial)
    assert behind.window == 100
    assert behind.take(demand, 5999.0) is None
