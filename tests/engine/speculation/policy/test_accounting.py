"""What steps teach: the surcharge of guesses, and the share of each remote drafter in a late step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation.policy.accounting import Accounting
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy, DrafterStep, StepPrices

ONE = 1
"""Size of steps with one sequence."""
SECOND_A_STEP = CostCurve([1, 1000], [1.0, 1.0])


class RecordingPolicy(DrafterPolicy):
    """Keeps what the last step told about each drafter."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Mapping[str, DrafterStep] = {}

    def step(self, size: int, done: Mapping[str, DrafterStep], prices: StepPrices, others: bool) -> None:
        self.last = done
        super().step(size, done, prices, others)


def surcharge_after_plain_steps(*, offered: bool) -> float:
    """Surcharge of guesses after steps in which guesses took twice the time, and many that bought none."""
    accounting = Accounting(SECOND_A_STEP, DrafterPolicy(), {}, [])
    for _ in range(50):
        accounting.step(ONE, 1, 0, 1.0, 0.0, set(), offered=False)
        accounting.step(ONE, 1, 4, 2.0, 0.0, set(), offered=True)
    assert accounting.pace.surcharge(ONE) == pytest.approx(2.0, rel=0.1)
    for _ in range(200):
        accounting.step(ONE, 1, 0, 1.0, 0.0, set(), offered=offered)
    return accounting.pace.surcharge(ONE)


def test_guesses_that_are_offered_and_not_bought_become_cheaper_until_they_are_tried() -> None:
    assert surcharge_after_plain_steps(offered=True) < 1.3
    assert surcharge_after_plain_steps(offered=False) == pytest.approx(2.0, rel=0.1)


def test_remote_drafters_that_were_asked_share_the_time_by_which_a_step_was_late() -> None:
    policy = RecordingPolicy()
    accounting = Accounting(SECOND_A_STEP, policy, {}, [])
    accounting.settle(2, 2, 0, 3.0, 0.0, {"model", "suffix"})
    assert {name: done.drafting for name, done in policy.last.items()} == {"model": 1.0, "suffix": 1.0}
