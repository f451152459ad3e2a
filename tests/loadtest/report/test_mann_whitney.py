"""The U test, beside p values that were counted by hand and by other programs."""

from __future__ import annotations

import math
import random

import pytest
from outrider.loadtest.report.mann_whitney import p_value


def test_samples_that_interleave_are_of_one_distribution_and_those_apart_are_not() -> None:
    assert p_value(range(0, 200, 2), range(1, 201, 2)) > 0.8
    assert p_value(range(50), range(50, 100)) < 1e-15


def test_the_figures_are_those_of_the_normal_approximation() -> None:
    """U = 2 of two samples of five: mean 12.5, variance 12.5 * 11 / 6, continuity 0.5, so z = 10 / sqrt(22.92)."""
    expected = math.erfc(10.0 / math.sqrt(275 / 12) / math.sqrt(2))
    assert p_value([1, 2, 3, 4, 7], [5, 6, 8, 9, 10]) == pytest.approx(expected)
    assert p_value([5, 6, 8, 9, 10], [1, 2, 3, 4, 7]) == pytest.approx(expected)


def test_ties_count_half_for_each() -> None:
    assert p_value([1, 1, 1], [1, 1]) == 1.0
    assert math.isnan(p_value([], [1]))
    assert p_value([1, 2, 2], [2, 2, 3]) == pytest.approx(p_value([3, 2, 2], [2, 2, 1]))


def test_of_samples_of_one_distribution_one_in_twenty_seems_to_differ() -> None:
    draw = random.Random(1)
    values = [p_value([draw.random() for _ in range(40)], [draw.random() for _ in range(40)]) for _ in range(400)]
    assert 0.02 < sum(value < 0.05 for value in values) / len(values) < 0.09
