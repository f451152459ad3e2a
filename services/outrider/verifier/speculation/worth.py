"""Which drafters are asked: all but those that lose time.

Each step settles an account with each drafter, in seconds: accepted guesses save plain decoding, bought guesses
cost rows, and the step waits for drafting. A drafter is paused for the time that steps wait, and not for guesses that
bring less than their rows cost: those are not bought. A drafter that loses more than `REGRET` of the time is paused
until its loss is `REGRET` of the time since, and is then tried again. So a drafter that costs microseconds is always
asked, and one that costs half a step is tried seldom where it does not pay.

A drafter in another process also takes cores and memory from the steps. While one is asked, short windows of plain
decoding show what a step takes without it. What a window loses is bounded in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from outrider.verifier.speculation.asking import Asking

REGRET = 0.01
"""Share of the time that trials of one drafter may lose, and that a drafter may lose for good."""
_GLANCE, _TRIAL, _FADE, _SURE = 6, 48, 1 - 1 / 96, 1.5
_FIRST, _WINDOW, _SETTLING, _LEAST_SHARE = 24, 16, 4, 0.05


class Yield(NamedTuple):
    """What one drafter did in a step.

    Attributes:
        bought: guesses of the drafter that were verified.
        accepted: guesses among those that came true, and that no cheaper drafter had made.
        drafting: seconds that the step took longer for the drafter.
        opening: share of the seconds that earlier steps took longer for the drafter because of prompts.
    """

    bought: int = 0
    accepted: int = 0
    drafting: float = 0.0
    opening: float = 0.0


class Prices(NamedTuple):
    """What a step's parts are worth, in seconds.

    Attributes:
        token: a plain step's time for each token.
        row: time that a guess adds to a step.
        step: time of the step.
    """

    token: float
    row: float
    step: float


@dataclass(slots=True)
class _Account:
    """What one drafter earned in the last steps of one size; older steps count less."""

    lost: float = 0.0
    brought: float = 0.0
    waited: float = 0.0
    squares: float = 0.0
    time: float = 0.0
    steps: int = 0
    usual: float = 0.0
    resumes: float = 0.0

    def enter(self, done: Yield, prices: Prices) -> None:
        """Takes in a step. Drafting counts for thrice the usual at most: something else held up the rest."""
        drafting = min(done.drafting, 3 * self.usual) if self.usual > 0 else done.drafting
        self.usual += (drafting - self.usual) / 8 if self.usual else drafting
        brought, waited = done.accepted * prices.token - done.bought * prices.row, drafting + done.opening
        self.lost += waited - brought
        self.brought = self.brought * _FADE + brought
        self.waited = self.waited * _FADE + waited
        self.squares = self.squares * _FADE + (brought - waited) ** 2
        self.time = self.time * _FADE + prices.step
        self.steps += 1

    @property
    def earned(self) -> float:
        """Seconds: what guesses brought, less what steps waited."""
        return max(self.brought, 0.0) - self.waited

    @property
    def loses(self) -> bool:
        """Whether the drafter loses more than `REGRET` of the time; a short trial has to be clear about it."""
        if self.steps < _GLANCE:
            return False
        number = (1 - _FADE**self.steps) / (1 - _FADE)
        mean = self.brought - self.waited
        doubt = sqrt(max(self.squares - mean**2 / number, 0.0)) if self.steps < _TRIAL else 0.0
        return self.earned + _SURE * doubt < -REGRET * self.time

    def pause(self, clock: float) -> None:
        """Ends the trial until its loss is `REGRET` of the time."""
        self.resumes = clock + max(self.lost, -self.earned) / REGRET
        self.lost = self.brought = self.waited = self.squares = self.time = 0.0
        self.steps = 0


@dataclass(slots=True)
class _Ledger:
    """The accounts of steps of one size, and the windows of plain decoding between them.

    Attributes:
        plain: steps that are left of a window.
        steps: steps that drafters in other processes were asked in.
        window_at: the clock's time from which the next window may begin.
        window_s: seconds that the steps of the window have taken.
    """

    accounts: dict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))
    plain: int = 0
    steps: int = 0
    window_at: float = 0.0
    window_s: float = 0.0

    def paused(self, clock: float) -> frozenset[str]:
        return frozenset(name for name, account in self.accounts.items() if account.resumes > clock)

    def step(self, done: Mapping[str, Yield], prices: Prices, clock: float) -> None:
        for name, each in done.items():
            account = self.accounts[name]
            account.enter(each, prices)
            if account.loses:
                account.pause(clock)

    def window(self, others: bool, seconds: float, clock: float) -> None:
        """Counts a step of a window, or begins one where drafters of ``others`` are asked and a window is due."""
        if self.plain:
            self.plain -= 1
            self.window_s += seconds
            if not self.plain:
                self.window_at = clock + self.window_s * max(self._share(), _LEAST_SHARE) / REGRET
        elif others:
            self.steps += 1
            if self.steps >= _FIRST and clock >= self.window_at:
                self.plain, self.window_s = _WINDOW, 0.0

    def _share(self) -> float:
        """What all drafters together earn, of the time of steps."""
        return sum(each.earned / each.time for each in self.accounts.values() if each.time)


class Worth:
    """Decides which drafters are asked, for steps of each size: the bits of the number of sequences that decode.

    Attributes:
        chooses: whether a drafter that steps wait for is asked for some sequences and not for others (`Asking`).
    """

    chooses = True

    def __init__(self) -> None:
        self._ledgers: dict[int, _Ledger] = defaultdict(_Ledger)
        self._clock = 0.0

    def asking(self, read_s: float) -> Asking:
        """What chooses the sequences for a drafter that steps wait for; ``read_s`` as of `Asking`."""
        return Asking(read_s)

    def quiet(self, size: int, drafters: Set[str]) -> frozenset[str]:
        """The drafters that are not asked at present: in a window all ``drafters``, else those that are paused."""
        if size not in self._ledgers:
            return frozenset()
        ledger = self._ledgers[size]
        return ledger.paused(self._clock) | (drafters if ledger.plain else set())

    def is_plain(self, size: int, others: Set[str]) -> bool:
        """Whether no drafter of ``others``, which run in other processes, is asked, nor was a moment ago."""
        ledger = self._ledgers[size]
        if ledger.plain:
            return ledger.plain <= _WINDOW - _SETTLING
        return others <= ledger.paused(self._clock)

    def step(self, size: int, done: Mapping[str, Yield], prices: Prices, others: bool) -> None:
        """Takes in what the drafters asked did in a step of decoding.

        ``others`` says whether one of them runs in another process.
        """
        ledger = self._ledgers[size]
        self._clock += prices.step
        if not ledger.plain:
            ledger.step(done, prices, self._clock)
        ledger.window(others, prices.step, self._clock)


class Always(Worth):
    """Has every drafter asked at every step, for every sequence."""

    chooses = False

    def step(self, size: int, done: Mapping[str, Yield], prices: Prices, others: bool) -> None:
        """Takes nothing in."""
