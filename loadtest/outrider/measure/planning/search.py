"""Finds the replicas that a load needs, by simulations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from outrider.measure.planning.costs import of_profile, pays_until
from outrider.measure.planning.mesh import simulate
from outrider.measure.planning.outcome import Outcome
from outrider.measure.planning.profile import Cpu, Profile, ProfileError
from outrider.measure.planning.scenario import Kill, Load, Scenario, of_measured, scaled

MOST = 1000
"""Most verifiers of a plan."""
CPU_SHARE = 0.7
"""Most of a gateway's or a tokenizer's core that a plan uses."""
_LEAST_REQUESTS, _LEAST_S, _PATIENCE_S = 400, 20.0, 120.0
_DEATHS_S = 5.0


@dataclass(frozen=True)
class Demand:
    """What a plan is for: requests a second, mean tokens, the SLO of 95 % of the requests, prices and power.

    Attributes:
        slo_first_s, slo_token_s: most seconds to the first token, and for each further one.
        prices: of one replica for an hour, by kind.
        watts: of one replica, by kind.
    """

    rate: float
    prompt_tokens: float
    answer_tokens: float
    slo_first_s: float
    slo_token_s: float
    prices: dict[str, float]
    watts: dict[str, float]
    seed: int = 0


class Plan(msgspec.Struct, frozen=True):
    """Replicas by kind, and what to expect of them.

    Attributes:
        replicas: without a spare one.
        first_p95_s, token_p95_s: simulated, with ``replicas``.
        death_first_p95_s: simulated, with one verifier more, of which one dies and is not replaced.
        saturation: requests a second that ``replicas`` take within the SLO.
        headroom: share of ``saturation`` that the demand leaves.
        busy: share of the time in which replicas work, by kind.
        cost: of a million tokens of answers with the spare verifier, in the prices' currency; None without prices.
        tokens_per_joule: of answers, with the spare verifier; None where no power is known.
        pays_below: requests a second with ``replicas`` up to which speculation pays; None where it always pays.
    """

    replicas: dict[str, int]
    spare_verifiers: int
    first_p95_s: float
    token_p95_s: float
    death_first_p95_s: float
    saturation: float
    headroom: float
    busy: dict[str, float]
    tokens_per_s: float
    cost: float | None
    tokens_per_joule: float | None
    pays_below: float | None


def find(profile: Profile, demand: Demand) -> Plan:
    """The smallest mesh that keeps the SLO.

    Raises:
        ProfileError: no number of verifiers does.
    """
    scenario = _scenario(profile, demand)
    if not _keeps(_alone(scenario, demand), demand):
        raise ProfileError(
            f"no number of verifiers keeps an SLO of {demand.slo_first_s:g} s and {demand.slo_token_s:g} s a token: "
            "even a verifier with one request in a hundred seconds is slower"
        )
    least = max(math.ceil(demand.rate / _bound(scenario, demand)), 1)
    verifiers = _smallest(least, lambda count: _keeps(simulate(replace(scenario, verifiers=count)), demand))
    scenario = replace(scenario, verifiers=verifiers)
    outcome, saturation = simulate(scenario), _saturation(scenario, demand)
    death = Kill(scenario.warm_up_s + _DEATHS_S, replaced=False)
    spare = simulate(replace(scenario, verifiers=verifiers + 1, kills=[death]))
    replicas = {"verifier": verifiers, "gateway": scenario.gateways, "tokenizer": scenario.tokenizers}
    tokens_per_s = demand.rate * demand.answer_tokens
    return Plan(
        replicas=replicas,
        spare_verifiers=1,
        first_p95_s=outcome.first(95),
        token_p95_s=outcome.token(95),
        death_first_p95_s=spare.first(95),
        saturation=saturation,
        headroom=1 - demand.rate / saturation,
        busy=outcome.busy,
        tokens_per_s=tokens_per_s,
        cost=_cost(replicas, demand, tokens_per_s),
        tokens_per_joule=_tokens_per_joule(profile, replicas, demand, tokens_per_s),
        pays_below=_pays_below(profile, scenario, demand),
    )


def _scenario(profile: Profile, demand: Demand) -> Scenario:
    load = Load([(0.0, demand.rate)], scaled(profile, demand.prompt_tokens, demand.answer_tokens))
    scenario = of_measured(profile, load)
    return replace(
        scenario,
        gateways=_processes(profile, "gateway", demand),
        tokenizers=_processes(profile, "tokenizer", demand),
        seconds=max(_LEAST_S, _LEAST_REQUESTS / demand.rate),
        patience_s=_PATIENCE_S,
        seed=demand.seed,
    )


def _processes(profile: Profile, kind: str, demand: Demand) -> int:
    cpu = profile.cpu.get(kind, Cpu())
    used = demand.rate * (cpu.request_s + demand.answer_tokens * cpu.token_s)
    return max(math.ceil(used / CPU_SHARE), 1)


def _alone(scenario: Scenario, demand: Demand) -> Outcome:
    """One verifier that nearly always has one request only."""
    seldom = Load([(0.0, 0.01)], scenario.load.lengths)
    return simulate(replace(scenario, load=seldom, seconds=10_000.0, warm_up_s=0.0))


def _bound(scenario: Scenario, demand: Demand) -> float:
    """Requests a second that no verifier exceeds."""
    prompt = sum(prompt for prompt, _ in scenario.load.lengths) / len(scenario.load.lengths)
    numbers = range(1, len(scenario.costs.seconds))
    return max(scenario.costs.capacity(running, prompt, demand.answer_tokens) for running in numbers)


def _keeps(outcome: Outcome, demand: Demand) -> bool:
    return outcome.first(95) <= demand.slo_first_s and outcome.token(95) <= demand.slo_token_s


def _smallest(least: int, keeps: Callable[[int], bool]) -> int:
    """The smallest count from ``least`` on that keeps the SLO: doubling steps, then halves.

    Raises:
        ProfileError: `MOST` do not.
    """
    low, high = least - 1, least
    while not keeps(high):
        if high >= MOST:
            raise ProfileError(f"{MOST} verifiers do not keep the SLO: lower --rate")
        low, high = high, min(high + max(2 * (high - low), 1), MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _saturation(scenario: Scenario, demand: Demand) -> float:
    """The highest rate that keeps the SLO, to 2 %; gateways and tokenizers grow with the rate."""

    def keeps(factor: float) -> bool:
        rate = demand.rate * factor
        others = {name: math.ceil(getattr(scenario, name) * factor) for name in ("gateways", "tokenizers")}
        load = Load([(0.0, rate)], scenario.load.lengths)
        return _keeps(simulate(replace(scenario, load=load, **others)), demand)

    low, high = 1.0, 2.0
    while keeps(high) and high < 1024:
        low, high = high, 2 * high
    while high / low > 1.02:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return demand.rate * low


def _with_spare(replicas: dict[str, int], each: dict[str, float]) -> float:
    return sum((count + (kind == "verifier")) * each.get(kind, 0.0) for kind, count in replicas.items())


def _cost(replicas: dict[str, int], demand: Demand, tokens_per_s: float) -> float | None:
    return _with_spare(replicas, demand.prices) / (3600 * tokens_per_s) * 1e6 if demand.prices else None


def _tokens_per_joule(profile: Profile, replicas: dict[str, int], demand: Demand, tokens_per_s: float) -> float | None:
    watts = demand.watts or ({"verifier": profile.watts} if profile.watts else {})
    return tokens_per_s / _with_spare(replicas, watts) if watts else None


def _pays_below(profile: Profile, scenario: Scenario, demand: Demand) -> float | None:
    speculative = of_profile(profile)
    running = pays_until(of_profile(profile, speculation=False), speculative)
    if running is None:
        return None
    prompt = sum(prompt for prompt, _ in scenario.load.lengths) / len(scenario.load.lengths)
    return scenario.verifiers * speculative.capacity(running, prompt, demand.answer_tokens) if running else 0.0
