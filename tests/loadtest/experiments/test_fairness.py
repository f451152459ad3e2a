"""Figures and bars of the load test of fairness."""

from __future__ import annotations

import math

import pytest
from outrider.loadtest.experiments.fairness import Latency, Service, judge, percentile


def latency(beside: str, slowest: float, failed: int = 0) -> Latency:
    return Latency(beside, [1.0] * 18 + [slowest] * 2, [0.1] * 20, failed)


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile([float(value) for value in range(100)]) == 95.0
    assert percentile([3.0]) == 3.0
    assert math.isnan(percentile([]))


def test_the_deviation_of_service_is_relative_to_the_share() -> None:
    assert Service(("one", "even"), (500, 500)).deviation((1.0, 1.0)) == 0
    assert Service(("one", "three"), (240, 760)).deviation((1.0, 3.0)) == pytest.approx(0.04)
    assert Service(("one", "three"), (270, 730)).deviation((1.0, 3.0)) == pytest.approx(0.08)


def test_bars_are_on_the_slow_ones_on_failures_and_on_service() -> None:
    services = [Service(("one", "even"), (520, 480)), Service(("one", "three"), (230, 770))]
    held = {"a full share": latency("a full share", 2.0), "a flood": latency("a flood", 2.5)}
    assert [bar.met for bar in judge(held, services)] == [True, True, True, False]
    slow = held | {"a flood": latency("a flood", 2.7, failed=1)}
    assert [bar.met for bar in judge(slow, services)] == [False, False, True, False]
