"""Costs of steps by the number of sequences that decode, from the points of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from outrider.measure.planning.profile import Limits, Profile, PromptCost, StepPoint


@dataclass(frozen=True)
class StepCosts:
    """Costs of a verifier's steps. Lists have an entry for each number of decoding sequences, from 0.

    Attributes:
        seconds: time of a step without prompts; at 0 that of a step of prompts, without their rows.
        tokens: tokens that a step adds to each sequence.
        rows: rows of each sequence, its guesses included.
        prompt: what rows of prompts add to a step.
    """

    seconds: list[float]
    tokens: list[float]
    rows: list[float]
    prompt: PromptCost

    def prompt_s(self, running: int, rows: float) -> float:
        """Seconds that ``rows`` of prompts add to a step of ``running`` sequences that decode."""
        return self.prompt.seconds(running * self.rows[running], rows)

    def capacity(self, running: int, prompt: float, answer: float) -> float:
        """Requests a second of a verifier that always has ``running`` sequences, by tokens of prompt and answer."""
        steps = max(answer - 1, 1) / self.tokens[running]
        return 1 / (self.prompt_s(running, prompt) + steps * self.seconds[running] / running)


def step_costs(points: Sequence[StepPoint], prompt: PromptCost, most: int) -> StepCosts:
    """Costs for up to ``most`` sequences: a line between two points, the last line's slope beyond the last point.

    Seconds never fall with more sequences, and a step adds one token at least. Points whose seconds fall, on a machine
    that changed its speed, get their mean.
    """
    points = sorted(points, key=lambda point: point.running)
    at, running = np.arange(1, most + 1, dtype=float), np.asarray([point.running for point in points])
    seconds = _line(at, running, np.asarray(_rising([point.seconds for point in points])))
    tokens = np.interp(at, running, [point.tokens for point in points])
    rows = np.interp(at, running, [point.rows for point in points])
    return StepCosts(
        seconds=[prompt.step_s, *np.maximum(seconds, 1e-6).tolist()],
        tokens=[1.0, *np.maximum(tokens, 1.0).tolist()],
        rows=[1.0, *np.maximum(rows, 1.0).tolist()],
        prompt=prompt,
    )


def of_profile(profile: Profile, speculation: bool = True) -> StepCosts:
    """The costs of a profile, with or without speculation."""
    points = profile.speculative if speculation and profile.speculative else profile.plain
    return step_costs(points, profile.prompt, profile.limits.max_running)


def constant(step_s: float, limits: Limits, row_s: float = 0.0) -> StepCosts:
    """Steps that take ``step_s`` for any number of sequences."""
    return step_costs([StepPoint(1, 1, step_s, 1)], PromptCost(step_s, row_s), limits.max_running)


def pays_until(plain: StepCosts, speculative: StepCosts) -> int | None:
    """The most sequences for which speculation still makes more tokens a second; None if it pays at every number."""
    for running in range(1, len(plain.seconds)):
        if speculative.tokens[running] / speculative.seconds[running] < 1 / plain.seconds[running]:
            return running - 1
    return None


def _rising(seconds: Sequence[float]) -> list[float]:
    """The nearest values that do not fall (isotonic regression by pooling neighbours)."""
    pools: list[list[float]] = []
    for each in seconds:
        pools.append([each])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [fmean(pool) for pool in pools for _ in pool]


def _line(at: np.ndarray, running: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Values between the points; beyond the last, at the slope of the last two points, which is 0 at least."""
    inside: np.ndarray = np.interp(at, running, seconds)
    if len(running) < 2:
        return inside
    slope = max(float((seconds[-1] - seconds[-2]) / max(running[-1] - running[-2], 1e-9)), 0.0)
    beyond: np.ndarray = inside + np.maximum(at - running[-1], 0) * slope
    return beyond
