"""Figures of a rate with their intervals, by a bootstrap of blocks: neighbours in time are not independent.

Source: Künsch, "The jackknife and the bootstrap for general stationary observations", 1989.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from outrider.measure.ramp.level import Level, Request

DRAWS = 1000
Values = NDArray[np.float64]
Statistic = Callable[[Values], Any]


class Slo(msgspec.Struct, frozen=True):
    """What a request must keep to count as good: seconds to the first token, and for each token after it."""

    first_s: float
    token_s: float

    def met(self, request: Request) -> bool:
        """Whether ``request`` has a whole answer in time."""
        if request.error or request.first_s is None or request.first_s > self.first_s:
            return False
        return request.token_s is None or request.token_s <= self.token_s


class Figure(msgspec.Struct, frozen=True):
    """A figure and the interval in which 95 % of its bootstrap draws lie; NaN without values."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """As in tables."""
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


NAMES = {
    "offered requests/s": "requests_per_s",
    "ended requests/s": "ended_per_s",
    "good requests/s": "goodput_per_s",
    "good part": "good",
    "tokens/s": "tokens_per_s",
    "TTFT p50, s": "first_p50_s",
    "TTFT p95, s": "first_p95_s",
    "TTFT p99, s": "first_p99_s",
    "TPOT p50, s": "token_p50_s",
    "TPOT p95, s": "token_p95_s",
    "whole p50, s": "whole_p50_s",
    "whole p95, s": "whole_p95_s",
}
"""Names of figures in tables."""
MORE_IS_BETTER = frozenset({"ended_per_s", "goodput_per_s", "good", "tokens_per_s"})


def figures(levels: Sequence[Level], slo: Slo) -> dict[str, Figure]:
    """Figures of the repeats of one rate."""
    return {name: _figure(values) for name, values in draws(levels, slo, np.random.default_rng(0)).items()}


def draws(levels: Sequence[Level], slo: Slo, generator: np.random.Generator) -> dict[str, Values]:
    """For each figure its value, and then `DRAWS` values of resampled requests or seconds."""
    tokens, ends = ([np.asarray(getattr(level, name), float) for level in levels] for name in ("tokens", "ends"))
    good = [np.asarray([float(slo.met(request)) for request in level.requests]) for level in levels]
    seconds = sum(level.seconds for level in levels) / len(levels)
    arrived = sum(len(level.requests) for level in levels) / len(levels)
    share = _resampled(good, np.mean, generator)
    return {
        "requests_per_s": np.full(DRAWS + 1, arrived / seconds),
        "ended_per_s": _resampled(ends, np.mean, generator),
        "good": share,
        "goodput_per_s": share * arrived / seconds,
        "tokens_per_s": _resampled(tokens, np.mean, generator),
    } | _percentiles(levels, generator)


def _percentiles(levels: Sequence[Level], generator: np.random.Generator) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for name, shares in {"first": (50, 95, 99), "token": (50, 95), "whole": (50, 95)}.items():
        values = [_answered(level, f"{name}_s") for level in levels]
        for share in shares:
            found[f"{name}_p{share}_s"] = _resampled(values, partial(np.percentile, q=share), generator)
    return found


def _answered(level: Level, name: str) -> Values:
    values = (getattr(request, name) for request in sorted(level.requests, key=lambda request: request.due_s))
    return np.asarray([value for value in values if value is not None], float)


def _resampled(repeats: Sequence[Values], statistic: Statistic, generator: np.random.Generator) -> Values:
    """``statistic`` of all values, then of draws: repeats with replacement, and in each its blocks with replacement."""
    repeats = [values for values in repeats if len(values)]
    if not repeats:
        return np.full(DRAWS + 1, np.nan)
    drawn = [statistic(np.concatenate(repeats))]
    for _ in range(DRAWS):
        chosen = [repeats[place] for place in generator.integers(len(repeats), size=len(repeats))]
        drawn.append(statistic(np.concatenate([_blocks(values, generator) for values in chosen])))
    return np.asarray(drawn, float)


def _blocks(values: Values, generator: np.random.Generator) -> Values:
    """As many values in blocks that begin anywhere; a block has the cube root of their number."""
    length = max(1, round(len(values) ** (1 / 3)))
    starts = generator.integers(len(values), size=-(-len(values) // length))
    places = (starts[:, None] + np.arange(length)) % len(values)
    resampled: Values = values[places.ravel()[: len(values)]]
    return resampled


def _figure(drawn: Values) -> Figure:
    low, high = np.percentile(drawn[1:], [2.5, 97.5])
    return Figure(float(drawn[0]), float(low), float(high))
