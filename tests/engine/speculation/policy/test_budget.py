"""The guesses that a step buys, and what is learnt from them."""

from __future__ import annotations

import pytest
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import MergedTree
from outrider.engine.speculation.policy.budget import Calibrator, Pace, buy

FLAT = CostCurve([1, 64], [1.0, 1.0])
STEEP = CostCurve([1, 64], [1.0, 64.0])
CHAIN = MergedTree([1, 2, 3], [-1, 0, 1], [0.9, 0.8, 0.05], [1, 2, 3], [0.9, 0.9, 0.06], ["m"] * 3)
WIDE = MergedTree([1, 2], [-1, -1], [0.5, 0.3], [1, 1], [0.5, 0.3], ["m"] * 2)


def test_everything_is_bought_where_rows_cost_nothing() -> None:
    assert [len(tree) for tree in buy([CHAIN, WIDE], [63, 63], 2, 64, FLAT)] == [3, 2]


def test_nothing_is_bought_where_every_row_costs_a_step() -> None:
    assert [len(tree) for tree in buy([CHAIN, WIDE], [63, 63], 2, 64, STEEP)] == [0, 0]


def test_the_likeliest_are_bought_first_over_all_sequences() -> None:
    assert [len(tree) for tree in buy([CHAIN, WIDE], [63, 63], 2, 3, FLAT)] == [2, 1]


def test_a_sequence_gets_no_more_than_its_cap() -> None:
    assert [len(tree) for tree in buy([CHAIN, WIDE], [1, 63], 2, 64, FLAT)] == [1, 2]


def test_the_whole_range_is_searched_past_a_step_in_the_cost() -> None:
    padded = CostCurve([1, 2, 8], [1.0, 2.5, 2.5])
    sure = MergedTree([1] * 6, list(range(-1, 5)), [0.99] * 6, list(range(1, 7)), [0.99] * 6, ["m"] * 6)
    assert len(buy([sure], [63], 1, 64, padded)[0]) == 6


def test_the_cost_curve_leaves_out_what_noise_added() -> None:
    curve = CostCurve.through([(1, 2.0), (2, 9.0), (4, 2.6), (8, 3.8), (16, 50.0), (32, 12.0)])
    assert [round(curve(rows), 3) for rows in (1, 2, 4, 8, 16, 32, 64)] == [2.0, 2.2, 2.6, 3.8, 6.533, 12.0, 24.0]


def test_the_cost_curve_never_falls() -> None:
    curve = CostCurve.through([(1, 2.0), (2, 1.5), (4, 4.0)])
    assert [curve(rows) for rows in (1, 2, 3, 4)] == [1.5, 1.5, 2.75, 4.0]
    assert CostCurve.through([(1, 3.0), (2, 1.0)])(1) == 1.0


def test_the_pace_follows_a_machine_that_gets_slower() -> None:
    pace = Pace()
    for _ in range(100):
        pace.learn(8, 2.0, 2.0)
    assert (pace(8), pace(1)) == (1.0, 1.0)
    for _ in range(200):
        pace.learn(8, 2.0, 4.0)
    assert pace(8) == pytest.approx(2.0, rel=0.01)


def test_a_first_step_without_measurable_time_does_not_fix_the_pace() -> None:
    pace = Pace()
    pace.learn(8, 1.0, 0.0)
    pace.learn(8, 1.0, 2.0)
    assert pace(8) == 2.0


def test_single_steps_that_were_held_up_count_for_little() -> None:
    pace = Pace()
    for _ in range(100):
        pace.learn(8, 1.0, 1.0)
    pace.learn(8, 1.0, 50.0)
    assert 1.0 < pace(8) < 1.1


def test_guesses_that_cannot_pay_are_not_looked_at() -> None:
    least = STEEP.least_value(2, 2, 62)
    assert least == 2 * 1.0 / 2.0
    assert FLAT.least_value(2, 2, 62) == 0.0
    assert CostCurve([1, 2, 8], [1.0, 2.5, 2.5]).least_value(1, 1, 6) == 0.0


def test_a_guess_beside_prompts_has_to_bring_as_much_as_without_them() -> None:
    curve = CostCurve([1, 8, 64], [40.0, 70.0, 400.0])
    beside = curve.beside(256, 8, 40)
    assert beside(8) == curve(8)
    assert beside(28) - beside(8) == pytest.approx(curve(284) - curve(264))
    assert beside(48) - beside(8) == pytest.approx(curve(304) - curve(264))
    assert beside.least_value(8, 8, 40) == pytest.approx(8 * 400 / 64 / 70)
    unsure = [MergedTree([5], [-1], [0.5], [1], [0.5], ["a"]) for _ in range(8)]
    assert not any(buy(unsure, [8] * 8, 8, 40, beside))
    assert any(buy(unsure, [8] * 8, 264, 40, curve))


def test_confidence_is_corrected_by_what_comes_true() -> None:
    calibrator = Calibrator()
    assert abs(calibrator(0.9) - 0.9) < 0.06
    for outcome in range(2000):
        calibrator.learn(0.9, outcome % 2 == 0)
    assert abs(calibrator(0.9) - 0.5) < 0.05
    assert abs(calibrator(0.2) - 0.2) < 0.06


def test_a_tenant_gets_no_more_than_its_cap_over_all_its_sequences() -> None:
    bought = buy([CHAIN, WIDE, WIDE], [63] * 3, 3, 64, FLAT, tenants=["a", "a", "b"], tenant_cap=3)
    assert [len(tree) for tree in bought] == [2, 1, 2]
