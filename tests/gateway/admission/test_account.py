"""Slices of one limit on a faulty broker: writes are refused, lost, late, or made and unanswered."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from outrider.gateway.admission.account import LEASE_S, SKEW_S, Account, LimitLedger, Slice

from tests.gateway.admission.limits import DAY, streams, tokens

PERIOD_S, LIMIT = 60, 1000


class Gateway:
    """The accounts of one gateway, one a period, and the error of its clock."""

    def __init__(self, name: str, serials: Iterator[int]) -> None:
        self.name, self.error_s = name, 0.0
        self._serials = serials
        self._accounts: dict[int, Account] = {}

    def account(self, now: float) -> Account:
        window = int((now + self.error_s) // PERIOD_S)
        if window not in self._accounts:
            self._accounts[window] = Account(self.name, PERIOD_S, self._serials, window)
        return self._accounts[window]


class FaultyBroker:
    """A ledger, gateways that share it, some with wrong clocks, and writes that are late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 20_000.0 * DAY
        self.ledger, self.revision = LimitLedger(), 0
        self.late: list[tuple[int, LimitLedger]] = []
        serials = itertools.count(1)
        self.gateways = [Gateway(f"gateway-{n}", serials) for n in range(3)]
        self.in_use: list[Slice] = []
        self.used: dict[int, int] = {}

    def step(self) -> None:
        """Makes one random event happen."""
        gateway = self.chance.choice(self.gateways)
        events = [self.reserve, self.settle, self.tend, self.arrive, self.tick, self.jump, self.die]
        what = self.chance.choices(events, [50, 30, 10, 8, 2, 2, 1])[0]
        what(gateway)
        assert all(used <= LIMIT for used in self.used.values()), self.used

    def reserve(self, gateway: Gateway) -> None:
        account, now = gateway.account(self.now), self.now + gateway.error_s
        demand = tokens("", self.chance.randint(1, 60), LIMIT, PERIOD_S)
        piece = account.take(demand, now)
        if piece is None:
            ledger = account.learn(self.ledger)
            self.write(account, *account.propose_refill(ledger, demand, now))
            piece = account.take(demand, now)
        if piece is not None:
            self.in_use.append(piece)
            self.used[piece.account.window] = self.used.get(piece.account.window, 0) + piece.amount

    def settle(self, _: Gateway) -> None:
        if self.in_use:
            piece = self.in_use.pop(self.chance.randrange(len(self.in_use)))
            used = self.chance.randint(0, piece.amount)
            piece.settle(used)
            self.used[piece.account.window] -= piece.amount - used

    def tend(self, gateway: Gateway) -> None:
        account = gateway.account(self.now)
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

    def arrive(self, _: Gateway) -> None:
        """A late write arrives; it is made if no other was made since it was sent."""
        if self.late:
            base, ledger = self.late.pop(self.chance.randrange(len(self.late)))
            if base == self.revision:
                self.ledger, self.revision = ledger, self.revision + 1

    def tick(self, _: Gateway) -> None:
        self.now += self.chance.choice([1, 20, 60])

    def jump(self, gateway: Gateway) -> None:
        """The clocks of one group of gateways at a time may be wrong."""
        wrong = [each.error_s for each in self.gateways if each.error_s]
        gateway.error_s = 0.0 if gateway.error_s else (*wrong, self.chance.choice([60.0, -60.0, float(DAY)]))[0]

    def die(self, gateway: Gateway) -> None:
        """Replaces a gateway, which loses its state, by a new one."""
        place = self.gateways.index(gateway)
        self.in_use = [piece for piece in self.in_use if piece.account.holder != gateway.name]
        self.gateways[place] = Gateway(f"gateway-{self.chance.random()}", itertools.count(1))


@pytest.mark.parametrize("seed", range(60))
def test_no_period_ever_exceeds_its_limit_whatever_becomes_of_writes_and_gateways(seed: int) -> None:
    broker = FaultyBroker(seed)
    for _ in range(400):
        broker.step()
    assert max(broker.used.values()) > LIMIT / 4


def test_a_write_that_was_made_and_not_answered_is_counted_once() -> None:
    account, demand, now = Account("one", PERIOD_S, itertools.count(1), 10), tokens("", 1, 10, PERIOD_S), 600.0
    account.take(demand, now)
    _, written = account.propose_refill(account.learn(LimitLedger()), demand, now)
    assert account.take(demand, now) is None
    account.learn(written)
    assert account.take(demand, now) is not None
    assert account.take(demand, now) is None


def test_a_lease_that_has_ended_is_left_alone_for_as_long_as_clocks_may_differ() -> None:
    serials = itertools.count(1)
    one, other, demand, now = Account("one", 0, serials, 0), Account("other", 0, serials, 0), streams("", 1, 1), 600.0
    serial, ledger = one.propose_refill(one.learn(LimitLedger()), demand, now)
    one.confirm(serial)
    assert one.take(demand, now + LEASE_S) is None
    for later, free in [(LEASE_S, 0), (LEASE_S + SKEW_S, 1)]:
        serial, written = other.propose_refill(other.learn(ledger), demand, now + later)
        assert other.free + written.held["other"].units == free
        other.refuse(serial)


def test_a_lease_that_ends_later_than_any_lease_may_is_not_believed_and_is_renewed() -> None:
    serials = itertools.count(1)
    ahead, other, demand, now = Account("a", 0, serials, 0), Account("b", 0, serials, 0), streams("", 1, 1), 600.0
    serial, ledger = ahead.propose_refill(ahead.learn(LimitLedger()), demand, now + DAY)
    ahead.confirm(serial)
    assert ahead.must_write(1, now)
    _, written = other.propose_refill(other.learn(ledger), demand, now)
    assert written.held["b"].units == 1


def test_a_ledger_keeps_the_periods_of_gateways_whose_clocks_differ() -> None:
    ledger = LimitLedger()
    for window in (5, 1445, 6, 1446):
        ledger = replace(ledger.at(window), spent=window)
    assert [ledger.at(window).spent for window in (5, 6, 1445, 1446)] == [5, 6, 1445, 1446]
    assert ledger.at(7).at(6).spent == 6
