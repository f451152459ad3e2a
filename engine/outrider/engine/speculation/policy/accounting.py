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
from outrider.engine.speculation.policy.versions import Earned


class Accounting:
    """Passes what each step's guesses brought and cost to `DrafterPolicy`, and counts them.

    Args:
        cost: seconds of a step by rows.
        policy: judges drafters by what they brought and cost.
        drafters: the local drafters, by name.
        counts: what is counted.

    Attributes:
        pace: measured seconds of plain steps over those of ``cost``.
        counts: counters of guesses since start.
    """

    def __init__(
        self, cost: CostCurve, policy: DrafterPolicy, drafters: Mapping[str, LocalDrafter], counts: Counts
    ) -> None:
        self._cost, self._policy, self._local = cost, policy, drafters
        self.pace, self.counts = Pace(), counts
        self._bought: Counter[tuple[str, str]] = Counter()
        self._accepted: Counter[tuple[str, str]] = Counter()

    def learn(self, guesses: MergedTree, rows: Seq[int], tenant: str) -> None:
        """Counts a tenant's bought guesses, and the accepted ones among them: those on ``rows``, counted from 1.

        A guess counts for the cheapest drafter that made it.
        """
        drafters, depths = guesses.drafters, guesses.depths
        self.counts.trees += 1
        for first in guesses.firsts:
            self._bought[first, tenant] += 1
        for guess in zip(drafters, depths, strict=True):
            self.counts.bought[guess] += 1
        for row in rows[1:]:
            self._accepted[guesses.firsts[row - 1], tenant] += 1
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

    def settle(
        self,
        size: int,
        sequences: int,
        guesses: int,
        seconds: float,
        waited: float,
        asked: Set[str],
        served: Mapping[tuple[str, str], int],
    ) -> list[Earned]:
        """Passes to `DrafterPolicy` what each drafter brought and cost in the step.

        The remote drafters in ``asked`` share all the time by which the step was late. Other arguments as in `step`.
        Returns what local drafters earned for tenants; ``served`` are numbers of sequences, by both.
        """
        cost, expected, pace = self._cost, self._cost(sequences + guesses), self.pace(size)
        plain = cost(sequences) * pace
        row = (expected * pace - plain) / max(guesses, 1)
        bought, accepted = _by_drafter(self._bought), _by_drafter(self._accepted)
        drafter_steps = {
            name: DrafterStep(bought[name], accepted[name], drafter.waited, drafter.opening())
            for name, drafter in self._local.items()
            if drafter.waited is not None
        }
        waits = {name: each.drafting + each.opening for name, each in drafter_steps.items()}
        late_s = (seconds - waited - expected * pace) / max(len(asked), 1)
        drafter_steps |= {name: DrafterStep(bought[name], accepted[name], late_s) for name in asked}
        prices = StepPrices(plain / sequences, row, seconds)
        self._policy.step(size, drafter_steps, prices, bool(asked))
        all_served, each_s = _by_drafter(served), seconds / sequences
        return [
            Earned(
                name,
                tenant,
                self._accepted[name, tenant] * prices.token
                - self._bought[name, tenant] * row
                - waits.get(name, 0.0) * number / all_served[name],
                each_s * number,
            )
            for (name, tenant), number in served.items()
        ]

    def clear(self) -> None:
        """Ends the step: `learn` counts for the next step from now on."""
        self._bought.clear()
        self._accepted.clear()


def _by_drafter(counts: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Sums of ``counts``, which are by drafter and tenant."""
    sums: Counter[str] = Counter()
    for (drafter, _), count in counts.items():
        sums[drafter] += count
    return sums
