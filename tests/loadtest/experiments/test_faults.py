"""The time until the speed recovers after a fault."""

from __future__ import annotations

import math

from outrider.loadtest.experiments.faults import Load, Phase, recovery

PHASES = [Phase("alone", 0.0, 10.0), Phase("together", 10.0, 20.0), Phase("SIGKILL", 20.0, 30.0, ("together",))]


def load(back_at: float) -> Load:
    """100 tokens/s alone, 200 together, none from the fault until ``back_at``."""
    speeds = Load("http://nowhere", [])
    times = [number / 100 for number in range(3000)]
    speeds.arrived = [(at, 1 if at < 10 else 2 if at < 20 or at >= back_at else 0) for at in times]
    return speeds


def test_the_speed_counts_tokens_that_arrived_in_the_time() -> None:
    assert load(25.0).speed(0.0, 10.0) == 100
    assert load(25.0).speed(10.0, 20.0) == 200


def test_the_speed_is_back_with_the_first_window_that_has_nine_tenths_of_it() -> None:
    assert math.isclose(recovery(load(23.0), PHASES[2], PHASES), 2.8, abs_tol=0.11)
    assert recovery(load(20.0), PHASES[2], PHASES) == 0.0


def test_a_speed_that_never_comes_back_is_never_back() -> None:
    assert recovery(load(30.0), PHASES[2], PHASES) == math.inf


def test_recovery_is_measured_against_the_slower_of_two_phases() -> None:
    slow = load(30.0)
    slow.arrived += [(at / 100, 1) for at in range(2000, 3000)]
    phase = Phase("SIGSTOP", 20.0, 30.0, ("alone", "together"))
    assert recovery(slow, phase, PHASES) == 0.0
    assert recovery(slow, PHASES[2], PHASES) == math.inf
