"""What steps teach: the pace of plain steps, and the share of each remote drafter in a late step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation.policy.accounting import Accounting
from outrider.engine.speculation.policy.counts import Counts
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


def test_remote_drafters_that_were_asked_share_the_time_by_which_a_step_was_late() -> None:
    policy = RecordingPolicy()
    accounting = Accounting(SECOND_A_STEP, policy, {}, Counts())
    accounting.settle(2, 2, 0, 3.0, 0.0, {"model", "suffix"}, {})
    assert {name: done.drafting for name, done in policy.last.items()} == {"model": 1.0, "suffix": 1.0}


def test_steps_that_a_remote_drafter_may_have_slowed_do_not_change_the_pace() -> None:
    accounting = Accounting(SECOND_A_STEP, DrafterPolicy(), {}, Counts())
    accounting.step(ONE, 1, 0, 1.0, 0.0, set())
    accounting.step(ONE, 1, 0, 2.0, 0.0, {"model"})
    assert accounting.pace(ONE) == 1.0
    accounting.step(ONE, 1, 4, 2.0, 0.5, set())
    assert accounting.pace(ONE) == pytest.approx(1.0 + 0.5 / 32)
