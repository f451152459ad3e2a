"""Which drafters are asked: those whose guesses save more time than they take. Others are tried again now and then.

What a drafter takes is more than its guesses' rows: one in another process takes cores and memory from the steps
themselves. So now and then, for a few steps, none is asked, to see what plain decoding takes when it is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_TRIAL, _FADE = 48, 1 - 1 / 64
_SHORTEST, _LONGEST = 384, 8192
_LEAST = 0.01
_GLANCE, _HARM = 12, -0.05
_SAMPLE, _POOR, _MANY = 24, -0.15, 4
_PLAIN, _SETTLING = 20, 4
_OFTEN, _SELDOM, _AMPLE = 384, 2048, 0.3


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


@dataclass(frozen=True, slots=True)
class Yield:
    """What one drafter did in a step.

    Attributes:
        bought: of its guesses, how many were verified.
        accepted: of those, how many came true.
        drafting: seconds for which the step waited for it.
        part: of the step's sequences, how many it was asked about.
    """

    bought: int = 0
    accepted: int = 0
    drafting: float = 0.0
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What a step's parts are worth in seconds.

    Attributes:
        token: what a plain step takes for each token.
        row: what a guess adds to a step.
        step: what the step took.
        sequences: that it moved on.
    """

    token: float
    row: float
    step: float
    sequences: int = 1


@dataclass(slots=True)
class _Book:
    many: bool = False
    few: bool = False
    earned: float = 0.0
    time: float = 0.0
    steps: int = 0
    quiet: int = 0
    rest: int = _SHORTEST
    usual: float = 0.0
    sequences: float = 0.0
    accepted: float = 0.0
    bought: float = 0.0
    drafting: float = 0.0

    @property
    def share(self) -> float:
        """What it earned, of the time that steps took."""
        return self.earned / self.time if self.time else 0.0

    def enter(self, done: Yield, prices: Prices) -> None:
        drafting = self._drafting(done.drafting)
        earned = done.accepted * prices.token - done.bought * prices.row - drafting
        self.earned = self.earned * _FADE + earned
        self.sequences = self.sequences * _FADE + prices.sequences * done.part
        self.accepted = self.accepted * _FADE + done.accepted
        self.bought = self.bought * _FADE + done.bought
        self.drafting = self.drafting * _FADE + drafting
        self.time = self.time * _FADE + prices.step * done.part
        self.steps += 1
        if self.few:
            self._judge_few()
        elif self.steps >= _TRIAL or (self.steps >= _GLANCE and self.share < _HARM):
            self._judge()

    def would_harm(self, prices: Prices) -> bool:
        """Whether it would not pay in a step of ``prices``, if it did for each sequence what it has done here."""
        if self.steps < _GLANCE:
            return False
        costs = self.bought * prices.row + self.drafting
        plain = self.sequences * prices.token
        return self.accepted * prices.token - costs < _HARM * (plain + costs)

    def _drafting(self, seconds: float) -> float:
        """What drafting took, or thrice what it usually does where something else held it up."""
        seconds = min(seconds, 3 * self.usual) if self.usual else seconds
        self.usual += (seconds - self.usual) / 8 if self.usual else seconds
        return seconds

    def _judge_few(self) -> None:
        """What a few sequences tell is enough to leave it alone, and else to ask it about all."""
        if self.steps >= _GLANCE and self.share < _POOR:
            self._leave()
        elif self.steps >= _SAMPLE:
            if self.share < _HARM:
                self._leave()
            else:
                self._begin(few=False)

    def _judge(self) -> None:
        if self.share >= _LEAST:
            self.rest = _SHORTEST
        else:
            self._leave()

    def _leave(self) -> None:
        self.quiet, self.rest = self.rest, min(2 * self.rest, _LONGEST)
        self._begin(few=self.many)

    def _begin(self, few: bool) -> None:
        self.few, self.earned, self.time, self.steps = few, 0.0, 0.0, 0


@dataclass(slots=True)
class _Ledger:
    """The books of one regime."""

    many: bool = False
    books: dict[str, _Book] = field(default_factory=dict)
    plain: int = 0
    until_plain: int = _OFTEN

    @property
    def resting(self) -> frozenset[str]:
        return frozenset(name for name, book in self.books.items() if book.quiet)

    @property
    def quiet(self) -> frozenset[str]:
        return frozenset(self.books) if self.plain else self.resting

    def step(self, done: Mapping[str, Yield], prices: Prices) -> None:
        if self.plain:
            self.plain -= 1
            return
        for name, each in done.items():
            book = self.books.setdefault(name, _Book(self.many, few=self.many))
            if book.quiet:
                book.quiet -= 1
            else:
                book.enter(each, prices)
        asked = [book.share for book in self.books.values() if not book.quiet]
        self.until_plain -= 1 if asked else 0
        if self.until_plain <= 0:
            self.plain, self.until_plain = _PLAIN, _SELDOM if max(asked, default=0.0) > _AMPLE else _OFTEN


@dataclass(slots=True)
class Worth:
    """Keeps a book for each drafter in each regime.

    One that does not pay is left alone, for longer each time, and tried again.
    """

    _ledgers: dict[Regime, _Ledger] = field(default_factory=dict)

    def quiet(self, regime: Regime) -> frozenset[str]:
        """Drafters that are not asked at present."""
        ledger = self._ledgers.get(regime)
        return ledger.quiet if ledger is not None else frozenset()

    def tries_few(self, regime: Regime, drafter: str) -> bool:
        """Whether a few sequences are enough to ask ``drafter`` about: it is on trial, and there are many."""
        ledger = self._ledgers.get(regime)
        book = ledger.books.get(drafter) if ledger is not None else None
        return regime.size >= _MANY if book is None else book.few

    def is_plain(self, regime: Regime, admitted: frozenset[str]) -> bool:
        """Whether nobody of those that are known and ``admitted`` is asked, nor was a moment ago."""
        ledger = self._ledgers.get(regime)
        if ledger is None:
            return True
        return ledger.plain <= _PLAIN - _SETTLING and admitted & ledger.books.keys() <= ledger.quiet

    def step(self, regime: Regime, done: Mapping[str, Yield], prices: Prices) -> None:
        """Takes in what each drafter did in a step of decoding, and what that might have been worth."""
        if regime not in self._ledgers:
            self._ledgers[regime] = self._begin(regime, prices)
        self._ledgers[regime].step(done, prices)

    def _begin(self, regime: Regime, prices: Prices) -> _Ledger:
        """A ledger in which those rest at first that do not pay for fewer sequences, or would not for so many.

        Others that pay for fewer are asked about all at once.
        """
        many = regime.size >= _MANY
        fewer = [known for known in self._ledgers if known.greedy == regime.greedy and known.size < regime.size]
        nearest = max(fewer, key=lambda known: known.size, default=None)
        books = self._ledgers[nearest].books if nearest else {}
        begun = {name: _Book(many) for name, book in books.items() if book.steps >= _TRIAL}
        resting = [name for name, book in books.items() if book.quiet or book.would_harm(prices)]
        return _Ledger(many, begun | {name: _Book(many, many, quiet=_SHORTEST, rest=2 * _SHORTEST) for name in resting})


class Patience(Worth):
    """Has every drafter asked at every step, whatever it is worth."""

    def step(self, regime: Regime, done: Mapping[str, Yield], prices: Prices) -> None:
        """Takes nothing in."""

    def tries_few(self, regime: Regime, drafter: str) -> bool:
        """Never: all sequences are guessed at."""
        return False
