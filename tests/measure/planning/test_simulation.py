from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outrider.measure.planning.costs import StepCosts, constant, pays_until, step_costs
from outrider.measure.planning.mesh import simulate
from outrider.measure.planning.outcome import Outcome
from outrider.measure.planning.profile import FORMAT, Cpu, Limits, Profile, ProfileError, PromptCost, StepPoint
from outrider.measure.planning.scenario import Autoscale, Kill, Load, Scenario, Trace
from outrider.measure.planning.search import Demand, find

ENDLESS = 10**9
LIMITS = Limits(max_running=8, max_waiting=256, prefill_rows=256, max_rows=320, pages=512, page_size=16)
PLAIN = [StepPoint(1, 1, 0.010, 1.0), StepPoint(8, 1, 0.016, 1.0)]
SPECULATIVE = [StepPoint(1, 4, 0.012, 2.4), StepPoint(8, 2, 0.030, 1.5)]
PROMPT = PromptCost(0.009, 2e-5)
COSTS = step_costs(SPECULATIVE, PROMPT, 8)
LENGTHS = [(200, 40), (500, 10), (50, 80)]
BUSY = Scenario(COSTS, LIMITS, Load([(0, 20.0)], LENGTHS), verifiers=3, warm_up_s=2, seconds=30)
PROFILE = Profile(
    FORMAT, {}, "m", {}, LIMITS, PLAIN, SPECULATIVE, PROMPT, {"gateway": Cpu(0.001)}, 0.0, LENGTHS, 1.0, {}, {}
)
DEMAND = Demand(20.0, 250, 43, 1.0, 0.1, {"verifier": 2.0}, {"verifier": 100.0})


def one_server(rate: float) -> Outcome:
    """A verifier with one slot and answers of one token in a second."""
    limits = Limits(1, ENDLESS, ENDLESS, ENDLESS, ENDLESS, 16)
    load = Load([(0, rate)], [(1, 1)])
    return simulate(Scenario(constant(1.0, limits), limits, load, warm_up_s=1000, seconds=40_000, patience_s=1000))


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_one_slot_waits_as_a_queue_with_random_arrivals_and_constant_service(rate):
    outcome = one_server(rate)
    assert np.mean(outcome.first_s) - 1 == pytest.approx(rate / (2 * (1 - rate)), rel=0.08)  # Pollaczek-Khinchine
    assert outcome.busy["verifier"] == pytest.approx(rate, rel=0.03)


def test_an_alone_request_takes_the_steps_of_its_prompt_and_its_tokens():
    costs = StepCosts([0.01, 0.02], [1.0, 1.0], [1.0, 1.0], PromptCost(0.01, 0.001))
    limits = replace_limits(max_running=1, prefill_rows=256)
    load = Load([(0, 0.01)], [(600, 11)])
    outcome = simulate(Scenario(costs, limits, load, warm_up_s=0, seconds=2000))
    assert outcome.first_s == pytest.approx(3 * 0.01 + 600 * 0.001)
    assert outcome.token_s == pytest.approx(0.02)


def replace_limits(**changes: int) -> Limits:
    fields = {name: getattr(LIMITS, name) for name in LIMITS.__struct_fields__}
    return Limits(**(fields | changes))


def test_a_trace_is_replayed_with_its_times_and_lengths():
    trace = Trace([(1.0, 50, 5), (3.0, 50, 5), (4.0, 400, 9)])
    outcome = simulate(replace(BUSY, load=trace))
    assert (outcome.arrived, len(outcome.first_s)) == (3, 2)
    assert outcome.first_s[1] > outcome.first_s[0]
    assert outcome.tokens_per_s == pytest.approx(14 / 30)


def test_every_request_ends_or_is_refused_or_is_there():
    crowded = replace(BUSY, load=Load([(0, 200.0), (20, 0.0)], LENGTHS), limits=replace_limits(max_waiting=4))
    outcome = simulate(crowded)
    assert outcome.refused > 0
    assert outcome.arrived == outcome.finished + outcome.refused + outcome.unfinished


def test_a_kill_loses_nothing():
    until = replace(BUSY, load=Load([(0, 20.0), (25, 0.0)], LENGTHS), kills=[Kill(10.0, 2)], ready_s=5.0)
    outcome = simulate(until)
    assert outcome.moved > 0
    assert (outcome.finished, outcome.refused, outcome.unfinished) == (outcome.arrived, 0, 0)
    assert outcome.verifiers == 3


def test_requests_wait_for_a_verifier_while_none_lives():
    until = replace(BUSY, load=Load([(0, 20.0), (5, 0.0)], LENGTHS), kills=[Kill(4.9, 3)], ready_s=8.0)
    outcome = simulate(until)
    assert outcome.finished + outcome.refused == outcome.arrived
    assert outcome.moved > 0


def test_short_pages_preempt_and_lose_nothing():
    short = replace_limits(pages=20)
    outcome = simulate(replace(BUSY, limits=short, load=Load([(0, 10.0), (25, 0.0)], [(100, 80)])))
    assert outcome.preempted > 0
    assert outcome.finished == outcome.arrived


def test_a_seed_fixes_the_result_and_another_seed_changes_it():
    first, again, other = (simulate(replace(BUSY, kills=[Kill(9.0)], seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.first_s, again.first_s)
    assert first.tokens_per_s == again.tokens_per_s != other.tokens_per_s


def test_a_full_verifier_makes_as_many_requests_as_its_costs_say():
    full = replace(BUSY, verifiers=1, load=Load([(0, 100.0)], [(250, 41)]), seconds=60)
    outcome = simulate(full)
    assert outcome.ended / 60 == pytest.approx(COSTS.capacity(8, 250, 41), rel=0.06)
    assert not outcome.keeps_up


def test_a_scaler_adds_verifiers_after_their_lag_and_drains_them_again():
    scaler = Autoscale(load=4, least=1, most=6, every_s=2.0)
    peak = replace(BUSY, verifiers=1, load=Load([(0, 20.0), (20, 0.5)], LENGTHS), autoscale=scaler, ready_s=3.0)
    assert simulate(replace(peak, seconds=16)).verifiers > 1
    assert simulate(replace(peak, seconds=80)).verifiers == 1


def test_speculation_stops_paying_where_its_steps_grow_faster_than_its_tokens():
    assert pays_until(step_costs(PLAIN, PROMPT, 8), COSTS) in range(1, 8)
    assert pays_until(COSTS, COSTS) is None


def test_a_plan_keeps_its_slo_and_pays_for_a_spare_verifier():
    found = find(PROFILE, DEMAND)
    assert found.replicas["verifier"] > 1
    assert found.first_p95_s <= 1.0
    assert found.token_p95_s <= 0.1
    assert found.saturation >= 20.0
    paid = found.replicas["verifier"] + 1
    assert found.cost == pytest.approx(paid * 2.0 / 3600 / (20 * 43) * 1e6)
    assert found.tokens_per_joule == pytest.approx(20 * 43 / (paid * 100))


def test_an_slo_below_one_requests_time_is_refused_with_a_sentence():
    with pytest.raises(ProfileError, match="no number of verifiers keeps an SLO"):
        find(PROFILE, replace(DEMAND, slo_token_s=0.001))


def test_steps_that_got_faster_with_more_sequences_get_their_mean():
    points = [StepPoint(1, 1, 0.06, 1.0), StepPoint(3, 1, 0.04, 1.0), StepPoint(5, 1, 0.08, 1.0)]
    assert step_costs(points, PROMPT, 5).seconds[1:] == pytest.approx([0.05, 0.05, 0.05, 0.065, 0.08])
