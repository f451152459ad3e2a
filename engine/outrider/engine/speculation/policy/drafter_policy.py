"""Decides which drafters are asked: all except those that lose time.

Each step settles an account with each drafter, in seconds: accepted guesses save plain decoding, bought guesses
cost rows, and the step waits for drafting. Only waiting pauses a drafter: guesses that bring less than their rows cost
are not bought. A drafter that loses more than `REGRET` of the time is paused until its loss is `REGRET` of the time
since, and is then tried again. So a drafter that costs microseconds is always asked, and an unprofitable drafter that
costs half a step is tried seldom.

A remote drafter also takes cores and memory from the steps. While remote drafters are asked, short windows of plain
decoding measure steps without them. The loss of a window is bounded in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from outrider.engine.speculation.policy.sequence_choice import SequenceChoice

REGRET = 0.01
"""Share of the time that trials of one drafter may lose, and that a drafter may lose without being paused."""
# An account remembers about 96 steps. A trial ends after 6 steps at the earliest, because the first steps of a sequence
# decide fewer tokens; up to 48 steps, the loss has to exceed 1.5 standard deviations.
_LEAST_STEPS, _TRIAL_STEPS, _FADE, _MARGIN = 6, 48, 1 - 1 / 96, 1.5
# A window of 16 plain steps measures steps without remote drafters. The first 4 do not count: drafters still work
# on the last commits. A window is assumed to lose at least 5 % of its time.
_STEPS_BEFORE_WINDOW, _WINDOW_STEPS, _SETTLING_STEPS, _LEAST_SHARE = 24, 16, 4, 0.05
# The usual drafting time is a mean of 8 steps; a step above 3 times the usual was held up by something else.
_USUAL, _OUTLIER = 1 / 8, 3.0
# Time for a prompt counts in about 32 later steps, which is how long it takes to pay off; a pause counts what is left.
_INSTALMENT = 1 / 32


class DrafterStep(NamedTuple):
    """What one drafter did in a step.

    Attributes:
        bought: verified guesses that count for the drafter: no cheaper drafter made them.
        accepted: the accepted guesses among those bought.
        drafting: seconds that the drafter added to the step.
        opening: seconds that the drafter added to this step and to steps before because of prompts.
    """

    bought: int = 0
    accepted: int = 0
    drafting: float = 0.0
    opening: float = 0.0


class StepPrices(NamedTuple):
    """Seconds that a step's parts cost.

    Attributes:
        token: time of a plain step for each token.
        row: time that a guess adds to a step.
        step: time of the step.
    """

    token: float
    row: float
    step: float


@dataclass(slots=True)
class _Account:
    """What one drafter earned in recent steps of one size; older steps count less."""

    lost: float = 0.0
    owed: float = 0.0
    brought: float = 0.0
    waited: float = 0.0
    squares: float = 0.0
    time: float = 0.0
    steps: int = 0
    usual: float = 0.0
    resumes: float = 0.0

    def enter(self, drafter_step: DrafterStep, prices: StepPrices) -> None:
        """Adds a step. Drafting counts for at most `_OUTLIER` times the usual; anything above has another cause."""
        drafting = min(drafter_step.drafting, _OUTLIER * self.usual) if self.usual > 0 else drafter_step.drafting
        self.usual += (drafting - self.usual) * _USUAL if self.usual else drafting
        brought = drafter_step.accepted * prices.token - drafter_step.bought * prices.row
        self.owed += drafter_step.opening
        instalment = self.owed * _INSTALMENT
        self.owed -= instalment
        waited = drafting + instalment
        self.lost += waited - brought
        self.brought = self.brought * _FADE + brought
        self.waited = self.waited * _FADE + waited
        self.squares = self.squares * _FADE + (brought - waited) ** 2
        self.time = self.time * _FADE + prices.step
        self.steps += 1

    @property
    def earned(self) -> float:
        """Seconds that guesses brought, less the seconds that steps waited."""
        return max(self.brought, 0.0) - self.waited

    @property
    def loses(self) -> bool:
        """Whether the drafter loses more than `REGRET` of the time; a short trial needs a clear margin."""
        if self.steps < _LEAST_STEPS:
            return False
        number = (1 - _FADE**self.steps) / (1 - _FADE)
        mean = self.brought - self.waited
        doubt = sqrt(max(self.squares - mean**2 / number, 0.0)) if self.steps < _TRIAL_STEPS else 0.0
        return self.earned + _MARGIN * doubt < -REGRET * self.time

    def pause(self, clock: float) -> None:
        """Ends the trial, and pauses the drafter until its loss is `REGRET` of the time since."""
        self.resumes = clock + (max(self.lost, -self.earned) + self.owed) / REGRET
        self.lost = self.owed = self.brought = self.waited = self.squares = self.time = 0.0
        self.steps = 0


@dataclass(slots=True)
class _Ledger:
    """The accounts of steps of one size, and the windows of plain decoding between them.

    Attributes:
        plain: steps left in the current window; 0 outside windows.
        steps: steps in which remote drafters were asked.
        window_at: time on the clock from which the next window may begin.
        window_s: seconds of the window's steps so far.
    """

    accounts: dict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))
    plain: int = 0
    steps: int = 0
    window_at: float = 0.0
    window_s: float = 0.0

    def paused(self, clock: float) -> frozenset[str]:
        return frozenset(name for name, account in self.accounts.items() if account.resumes > clock)

    def step(self, drafter_steps: Mapping[str, DrafterStep], prices: StepPrices, clock: float) -> None:
        for name, drafter_step in drafter_steps.items():
            account = self.accounts[name]
            account.enter(drafter_step, prices)
            if account.loses:
                account.pause(clock)

    def window(self, others: bool, seconds: float, clock: float) -> None:
        """Counts a step of the window, or begins a window if ``others`` (remote drafters) are asked and one is due."""
        if self.plain:
            self.plain -= 1
            self.window_s += seconds
            if not self.plain:
                self.window_at = clock + self.window_s * max(self._share(), _LEAST_SHARE) / REGRET
        elif others:
            self.steps += 1
            if self.steps >= _STEPS_BEFORE_WINDOW and clock >= self.window_at:
                self.plain, self.window_s = _WINDOW_STEPS, 0.0

    def _share(self) -> float:
        """Share of the time of steps that all drafters together earn."""
        return sum(account.earned / account.time for account in self.accounts.values() if account.time)


class DrafterPolicy:
    """Decides which drafters are asked in steps of each size: the bit length of the number of sequences.

    Attributes:
        chooses: whether `SequenceChoice` chooses the sequences that a local drafter is asked for.
    """

    chooses = True

    def __init__(self) -> None:
        self._ledgers: dict[int, _Ledger] = defaultdict(_Ledger)
        self._clock = 0.0

    def sequence_choice(self) -> SequenceChoice:
        """Chooses the sequences for a drafter that steps wait for."""
        return SequenceChoice()

    def paused(self, size: int, drafters: Set[str]) -> frozenset[str]:
        """The drafters that are not asked: all ``drafters`` in a window of plain decoding, else the paused ones."""
        if size not in self._ledgers:
            return frozenset()
        ledger = self._ledgers[size]
        return ledger.paused(self._clock) | (drafters if ledger.plain else set())

    def is_plain(self, size: int, others: Set[str]) -> bool:
        """Whether no remote drafter of ``others`` is asked, or was asked a few steps ago."""
        ledger = self._ledgers[size]
        if ledger.plain:
            return ledger.plain <= _WINDOW_STEPS - _SETTLING_STEPS
        return others <= ledger.paused(self._clock)

    def forget(self, drafter: str) -> None:
        """Closes the accounts of a drafter that is gone."""
        for ledger in self._ledgers.values():
            ledger.accounts.pop(drafter, None)

    def step(self, size: int, drafter_steps: Mapping[str, DrafterStep], prices: StepPrices, others: bool) -> None:
        """Learns what the drafters did in a step without prompts; ``others`` says whether a remote one was asked."""
        ledger = self._ledgers[size]
        self._clock += prices.step
        if not ledger.plain:
            ledger.step(drafter_steps, prices, self._clock)
        ledger.window(others, prices.step, self._clock)


class AskAlways(DrafterPolicy):
    """Asks every drafter at every step for every sequence."""

    chooses = False

    def step(self, size: int, drafter_steps: Mapping[str, DrafterStep], prices: StepPrices, others: bool) -> None:
        """Learns nothing."""
