"""What is simulated: a mesh, its load, and what befalls it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.measure.planning.costs import StepCosts, of_profile
from outrider.measure.planning.profile import Cpu, Limits, Profile

NOTICE_S = 1.0
"""Seconds after which a gateway notices a dead verifier, where a scenario does not say."""


@dataclass(frozen=True)
class Load:
    """Random arrivals that do not depend on each other.

    Attributes:
        rates: requests a second, from each second of the simulation on; ascending, the first at 0.
        lengths: tokens of prompt and answer; each request draws a pair.
    """

    rates: Sequence[tuple[float, float]]
    lengths: Sequence[tuple[int, int]]

    def arrivals(self, draw: random.Random) -> Iterator[tuple[float, int, int]]:
        """Seconds, tokens of the prompt and of the answer, without end (or to the beginning of a last rate of 0)."""
        at, bounds = 0.0, [*(since for since, _ in self.rates[1:]), float("inf")]
        for (since, rate), until in zip(self.rates, bounds, strict=True):
            at = since
            while rate and (at := at + draw.expovariate(rate)) < until:
                prompt, answer = draw.choice(self.lengths)
                yield at, prompt, answer


@dataclass(frozen=True)
class Trace:
    """Requests of a real load: seconds, tokens of the prompt that were computed, tokens of the answer; in order."""

    requests: Sequence[tuple[float, int, int]]

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Tokens of prompt and answer of each request."""
        return [(prompt, answer) for _, prompt, answer in self.requests]

    def arrivals(self, draw: random.Random) -> Iterator[tuple[float, int, int]]:
        """All requests; nothing is drawn."""
        return iter(self.requests)


@dataclass(frozen=True)
class Kill:
    """At ``at_s``, ``count`` verifiers die; if ``replaced``, others are ready `Scenario.ready_s` later."""

    at_s: float
    count: int = 1
    replaced: bool = True


@dataclass(frozen=True)
class Autoscale:
    """Starts and drains verifiers every ``every_s`` seconds, so that each has ``load`` requests at most on average."""

    load: float
    least: int
    most: int
    every_s: float = 15.0


@dataclass(frozen=True)
class Scenario:
    """A mesh, its load, and the measured time.

    Attributes:
        gateways, tokenizers, verifiers: replicas.
        cpu: CPU seconds by kind of service.
        overhead_s: seconds that every request takes besides.
        warm_up_s, seconds, patience_s: seconds that are not measured, that are, and that are left to
            requests due at their end.
        ready_s: seconds until a new verifier is ready.
        notice_s: seconds until a gateway notices a dead verifier.
    """

    costs: StepCosts
    limits: Limits
    load: Load | Trace
    verifiers: int = 1
    gateways: int = 1
    tokenizers: int = 1
    cpu: dict[str, Cpu] = field(default_factory=dict)
    overhead_s: float = 0.0
    warm_up_s: float = 10.0
    seconds: float = 60.0
    patience_s: float = 60.0
    kills: Sequence[Kill] = ()
    autoscale: Autoscale | None = None
    ready_s: float = 60.0
    notice_s: float = NOTICE_S
    seed: int = 0


def of_measured(profile: Profile, load: Load | Trace, speculation: bool = True) -> Scenario:
    """A scenario of one replica of each kind, with the costs of ``profile``."""
    return Scenario(
        costs=of_profile(profile, speculation),
        limits=profile.limits,
        load=load,
        cpu=profile.cpu,
        overhead_s=profile.overhead_s,
    )


def scaled(profile: Profile, prompt_tokens: float, answer_tokens: float) -> list[tuple[int, int]]:
    """The measured lengths, stretched to these means; of a prompt, what is computed."""
    prompts, answers = zip(*profile.lengths, strict=True)
    by_prompt = prompt_tokens * len(prompts) / sum(prompts) * profile.computed
    by_answer = answer_tokens * len(answers) / sum(answers)
    return [(max(round(a * by_prompt), 1), max(round(b * by_answer), 1)) for a, b in profile.lengths]
