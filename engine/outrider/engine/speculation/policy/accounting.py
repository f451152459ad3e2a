"""What guesses brought and cost in each step, from which `DrafterPolicy` decides which drafters are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from collections.abc import Sequence as Seq

from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import MergedTree
from outrider.engine.speculation.policy.budget import Pace
from outrider.engine.speculation.policy.counts import Counts
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy, DrafterStep, StepPrices
from outrider.engine.speculation.policy.local_drafter import LocalDrafter


class Accounting:
    """Passes what each step's guesses brought and cost to `DrafterPolicy`, and counts them.

    Args:
        cost: seconds of a step by rows.
        policy: judges drafters by what they brought and cost.
        drafters: the local drafters, by name.

    Attributes:
        pace: measured seconds of plain steps over those of ``cost``.
        counts: counters of guesses since start.
    """

    def __init__(self, cost: CostCurve, policy: DrafterPolicy, drafters: Mapping[str, LocalDrafter]) -> None:
        self._cost, self._policy, self._local = cost, policy, drafters
        self.pace, self.counts = Pace(), Counts()
        self._bought: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()

    def learn(self, guesses: MergedTree, rows: Seq[int]) -> None:
        """Counts a sequence's bought guesses, and the accepted ones among them: those on ``rows``, counted from 1.

        A guess counts for the cheapest drafter that made it.
        """
        drafters, depths = guesses.drafters, guesses.depths
        self.counts.trees += 1
        for first in guesses.firsts:
            self._bought[first] += 1
        for guess in zip(drafters, depths, strict=True):
            self.counts.bought[guess] += 1
        for row in rows[1:]:
            self._accepted[guesses.firsts[row - 1]] += 1
            self.counts.accepted[drafters[row - 1], depths[row - 1]] += 1

    def step(self, size: int, sequences: int, guesses: int, seconds: float, waited: float, remote: Set[str]) -> None:
        """Learns the pace from a step that computed no prompts. Called before `settle`.

        Args:
            size: size of the step, as in `DrafterPolicy`.
            sequences: number of sequences that decoded.
            guesses: number of guesses verified.
            seconds: time of the step.
            waited: the part of ``seconds`` that the step waited for local drafters.
            remote: remote drafters that may have slowed the step.
        """
        expected = self._cost(sequences + guesses)
        self.counts.predicted += expected * self.pace(size) + waited
        self.counts.real += seconds
        if self._policy.is_plain(size, remote):
            self.pace.learn(size, expected, max(seconds - waited, 0.0))
        for drafter in self._local.values():
            drafter.time_step(size, seconds)

    def settle(self, size: int, sequences: int, guesses: int, seconds: float, waited: float, asked: Set[str]) -> None:
        """Passes to `DrafterPolicy` what each drafter brought and cost in the step.

        The remote drafters in ``asked`` share all the time by which the step was late. Other arguments as in `step`.
        """
        cost, expected, pace = self._cost, self._cost(sequences + guesses), self.pace(size)
        plain = cost(sequences) * pace
        row = (expected * pace - plain) / max(guesses, 1)
        drafter_steps = {
            name: DrafterStep(self._bought[name], self._accepted[name], drafter.waited, drafter.instalment())
            for name, drafter in self._local.items()
            if drafter.waited is not None
        }
        late_s = (seconds - waited - expected * pace) / max(len(asked), 1)
        drafter_steps |= {name: DrafterStep(self._bought[name], self._accepted[name], late_s) for name in asked}
        self._policy.step(size, drafter_steps, StepPrices(plain / sequences, row, seconds), bool(asked))

    def clear(self) -> None:
        """Ends the step: `learn` counts for the next step from now on."""
        self._bought.clear()
        self._accepted.clear()
