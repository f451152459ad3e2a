"""What one drafter earned in steps of one kind, and whether that is enough to ask it again."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

_TRIAL, _FADE = 48, 1 - 1 / 96
_SHORTEST, _LONGEST = 384, 8192
_LEAST = 0.01
_GLANCE, _HARM, _SURE = 6, -0.05, 1.5
_SAMPLE, _POOR = 24, -0.15


class Yield(NamedTuple):
    """What one drafter did in a step.

    Attributes:
        bought: of its guesses, how many were verified.
        accepted: of those, how many came true.
        drafting: seconds for which the step waited for it.
        opening: its share of those for which steps waited that computed prompts.
        part: of the step's sequences, how many it was asked about.
    """

    bought: int = 0
    accepted: int = 0
    drafting: float = 0.0
    opening: float = 0.0
    part: float = 1.0


class Prices(NamedTuple):
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

    @classmethod
    def of(cls, plain: float, real: float, sequences: int, guesses: int, seconds: float) -> Prices:
        """Prices in a step that took ``seconds``, with what such steps have taken lately.

        Args:
            plain: seconds of a step without its guesses.
            real: seconds of such a step.
            sequences: that it moved on.
            guesses: that it verified.
            seconds: that it took.
        """
        return cls(plain / sequences, max(real - plain, 0.0) / max(guesses, 1), seconds, sequences)


@dataclass(slots=True)
class Book:
    """The account of a drafter.

    Attributes:
        many: whether it is tried on a few of the sequences first.
        few: whether it is, at present.
        until: step of its kind before which it is not tried again.
        rest: for how many steps it will be left alone the next time.
        rested: for how many it was the last time.
    """

    many: bool = False
    few: bool = False
    earned: float = 0.0
    squares: float = 0.0
    time: float = 0.0
    steps: int = 0
    until: int = 0
    rest: int = _SHORTEST
    rested: int = 0
    usual: float = 0.0
    sequences: float = 0.0
    accepted: float = 0.0
    bought: float = 0.0
    drafting: float = 0.0

    @classmethod
    def resting(cls, many: bool) -> Book:
        """Of a drafter that is left alone at first."""
        return cls(many, many, until=_SHORTEST, rest=2 * _SHORTEST)

    @property
    def share(self) -> float:
        """What it earned, of the time that steps took."""
        return self.earned / self.time if self.time else 0.0

    @property
    def judged(self) -> bool:
        """Whether a trial is over."""
        return self.steps >= _TRIAL

    def enter(self, done: Yield, prices: Prices) -> float | None:
        """Takes in a step; returns seconds lost if it is to be left alone from now on."""
        drafting = self._drafting(done.drafting) + done.opening
        earned = done.accepted * prices.token - done.bought * prices.row - drafting
        self.earned = self.earned * _FADE + earned
        self.squares = self.squares * _FADE + earned * earned
        self.sequences = self.sequences * _FADE + prices.sequences * done.part
        self.accepted = self.accepted * _FADE + done.accepted
        self.bought = self.bought * _FADE + done.bought
        self.drafting = self.drafting * _FADE + drafting
        self.time = self.time * _FADE + prices.step * done.part
        self.steps += 1
        lost, self.rested = max(-self.earned, 0.0), 0
        (self._judge_few if self.few else self._judge)()
        return lost if self.rested else None

    def would_harm(self, prices: Prices) -> bool:
        """Whether it would not pay in a step of ``prices``, if it did for each sequence what it has done here."""
        if self.steps < 2 * _GLANCE:
            return False
        costs = self.bought * prices.row + self.drafting
        plain = self.sequences * prices.token
        return self.accepted * prices.token - costs < _HARM * (plain + costs)

    def _drafting(self, seconds: float) -> float:
        """What drafting took, or thrice what it usually does where something else held it up."""
        seconds = min(seconds, 3 * self.usual) if self.usual else seconds
        self.usual += (seconds - self.usual) / 8 if self.usual else seconds
        return seconds

    def _doubt(self) -> float:
        """By how much the share may be wrong, since some steps have more luck than others."""
        steps = (1 - _FADE**self.steps) / (1 - _FADE)
        return sqrt(max(self.squares - self.earned**2 / steps, 0.0)) / self.time if self.time else 0.0

    def _harms(self, least: float) -> bool:
        return self.steps >= _GLANCE and self.share + _SURE * self._doubt() < least

    def _judge_few(self) -> None:
        """What a few sequences tell is enough to leave it alone, and else to ask it about all."""
        if self._harms(_POOR):
            self._leave()
        elif self.steps >= _SAMPLE:
            if self.share < _HARM:
                self._leave()
            else:
                self._begin(few=False)

    def _judge(self) -> None:
        """One that harms is left at once; later on it has to pay."""
        if self._harms(0.0) or (self.judged and self.share < _LEAST):
            self._leave()
        elif self.judged and self.share - self._doubt() > _LEAST:
            self.rest = _SHORTEST

    def _leave(self) -> None:
        self.rested, self.rest = self.rest, min(2 * self.rest, _LONGEST)
        self._begin(few=self.many)

    def _begin(self, few: bool) -> None:
        self.few, self.earned, self.squares, self.time, self.steps = few, 0.0, 0.0, 0.0, 0
