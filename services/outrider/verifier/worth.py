"""Which drafters are asked: those whose guesses save more time than they take. Others are tried again now and then.

What a drafter takes is more than its guesses' rows: one in another process takes cores and memory from the steps
themselves. So now and then, for a few steps, none is asked, to see what plain decoding takes when it is left alone.
Neither that nor what trials lose may be more than a small part of all time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.verifier.book import Book, Prices, Yield

_MANY = 4
_PLAIN, _SETTLING = 24, 4
_FIRST, _OFTEN, _TOLL = 24, 96, 0.0075
_BUDGET = 0.005


class Regime(NamedTuple):
    """What steps have in common whose drafters are judged together.

    Attributes:
        size: bits of the number of sequences that decode.
        greedy: whether all of them are; None where some are.
    """

    size: int
    greedy: bool | None

    @classmethod
    def of(cls, greedy: list[bool]) -> Regime:
        """The regime of sequences, each greedy or not."""
        return cls(len(greedy).bit_length(), True if all(greedy) else None if any(greedy) else False)


@dataclass(slots=True)
class _Ledger:
    """The books of one regime."""

    many: bool = False
    books: dict[str, Book] = field(default_factory=dict)
    resting: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()
    steps: int = 0
    plain: int = 0
    until_plain: int = _FIRST

    def step(self, done: Mapping[str, Yield], prices: Prices) -> dict[str, float]:
        """Takes in a step; returns what trials that end with it have lost, in seconds."""
        return {} if self.idle() or not done else self._enter(done, prices)

    def idle(self) -> bool:
        """Takes in that there was a step; whether nobody was to be asked in it, for the sake of plain ones."""
        self.steps += 1
        if not self.plain:
            return False
        self.plain -= 1
        self.quiet = frozenset(self.books) if self.plain else self.resting
        return True

    def _enter(self, done: Mapping[str, Yield], prices: Prices) -> dict[str, float]:
        over: dict[str, float] = {}
        asked = [name for name in done if name not in self.resting]
        for name in asked:
            book = self.books.setdefault(name, Book(self.many, few=self.many))
            if (lost := book.enter(done[name], prices)) is not None:
                over[name], book.until = lost, self.steps + book.rested
        self.resting |= over.keys()
        if asked:
            self._count(max(self.books[name].share for name in asked))
        self.quiet = frozenset(self.books) if self.plain else self.resting
        return over

    def _count(self, share: float) -> None:
        """Has nobody asked for a few steps now and then: the more seldom, the more is lost by it."""
        self.until_plain -= 1
        if self.until_plain <= 0:
            self.plain, self.until_plain = _PLAIN, max(_OFTEN, round(_PLAIN * share / _TOLL))

    def wake(self, clock: float, due: Mapping[str, float]) -> None:
        """Ends the rest of those that have rested for long enough, by steps and by the ``clock``."""
        woken = {name for name in self.resting if self.books[name].until <= self.steps and due.get(name, 0.0) <= clock}
        if woken:
            self.resting -= woken
            self.quiet = frozenset(self.books) if self.plain else self.resting


@dataclass(slots=True)
class Worth:
    """Keeps a book for each drafter in each regime.

    One that does not pay is left alone, for longer each time, and tried again once what its last trial lost is a small
    part of the time since, whatever regimes that was in.
    """

    _ledgers: dict[Regime, _Ledger] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _clock: float = 0.0

    def quiet(self, regime: Regime) -> frozenset[str]:
        """Drafters that are not asked at present."""
        ledger = self._ledgers.get(regime)
        if ledger is not None:
            return ledger.quiet
        nearest = self._nearest(regime)
        return self._ledgers[nearest].resting if nearest else frozenset()

    def tries_few(self, regime: Regime, drafter: str) -> bool:
        """Whether a few sequences are enough to ask ``drafter`` about: it is on trial, and there are many."""
        ledger = self._ledgers.get(regime)
        book = ledger.books.get(drafter) if ledger is not None else None
        return regime.size >= _MANY if book is None else book.few

    def is_plain(self, regime: Regime, admitted: frozenset[str]) -> bool:
        """Whether nobody of those that are ``admitted`` is asked, nor was a moment ago."""
        ledger = self._ledgers.get(regime)
        if ledger is None:
            return True
        return ledger.plain <= _PLAIN - _SETTLING and admitted & ledger.books.keys() <= ledger.quiet

    def step(self, regime: Regime, done: Mapping[str, Yield], prices: Prices) -> None:
        """Takes in what each drafter did in a step of decoding, and what that might have been worth."""
        if regime not in self._ledgers:
            self._ledgers[regime] = self._begin(regime, prices)
        ledger, self._clock = self._ledgers[regime], self._clock + prices.step
        for name, lost in ledger.step(done, prices).items():
            self._due[name] = self._clock + lost / _BUDGET
        if ledger.resting:
            ledger.wake(self._clock, self._due)

    def idle(self, regime: Regime, seconds: float) -> bool:
        """Takes in a step of decoding in which no drafter did anything; False if none like it was seen before."""
        ledger = self._ledgers.get(regime)
        if ledger is None:
            return False
        self._clock += seconds
        ledger.idle()
        if ledger.resting:
            ledger.wake(self._clock, self._due)
        return True

    def _nearest(self, regime: Regime) -> Regime | None:
        """The known regime that is most like one that is not: of fewer sequences, or else of more."""
        alike = [known for known in self._ledgers if known.greedy == regime.greedy]
        fewer = [known for known in alike if known.size < regime.size]
        return max(fewer, default=None) if fewer else min(alike, default=None)

    def _begin(self, regime: Regime, prices: Prices) -> _Ledger:
        """A ledger in which those rest at first that do not pay in the nearest regime, or would not for so many.

        Others that pay there are asked about all sequences at once.
        """
        many, nearest = regime.size >= _MANY, self._nearest(regime)
        if nearest is None:
            return _Ledger(many)
        known = self._ledgers[nearest]
        resting = known.resting | {name for name, book in known.books.items() if book.would_harm(prices)}
        begun = {name: Book(many) for name, book in known.books.items() if book.judged and name not in resting}
        return _Ledger(many, begun | {name: Book.resting(many) for name in resting}, resting, resting)


class Patience(Worth):
    """Has every drafter asked at every step, whatever it is worth."""

    def step(self, regime: Regime, done: Mapping[str, Yield], prices: Prices) -> None:
        """Takes nothing in."""

    def tries_few(self, regime: Regime, drafter: str) -> bool:
        """Never: all sequences are guessed at."""
        return False
