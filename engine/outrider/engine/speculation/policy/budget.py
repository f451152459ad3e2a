"""Chooses the guesses that a step buys: those that bring more tokens than their rows cost.

A step over n rows takes t(n) seconds, measured at start. The guesses of all running sequences are ranked by their
probability of being right. The first B are bought, where B maximizes expected tokens over time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import MergedTree


@dataclass(slots=True)
class _Track:
    """The estimate for one kind of step: logarithms of its pace and of what guesses add, with their covariance.

    A Kalman filter (Kalman 1960) of two states. A plain step shows the first state, a step with guesses their sum.
    """

    level: float = 0.0
    surcharge: float = 0.0
    level_variance: float = 4.0
    covariance: float = 0.0
    surcharge_variance: float = 0.04
    last_step: int = 0

    def age(self, now: int) -> None:
        """Widens the variances: the machine's speed drifts with every step, the surcharge of guesses hardly drifts."""
        steps, self.last_step = min(now - self.last_step, _MOST_AGED_STEPS), now
        self.level_variance += _LEVEL_DRIFT * steps
        self.surcharge_variance += _SURCHARGE_DRIFT * steps

    def learn(self, guessing: bool, measured: float) -> None:
        """Updates the estimate with a factor's logarithm; an outlier is clipped to the edge of what is likely."""
        level = self.level_variance + guessing * self.covariance
        surcharge = self.covariance + guessing * self.surcharge_variance
        spread = level + guessing * surcharge + _NOISE
        edge = _CLIP * math.sqrt(spread)
        error = min(max(measured - self.level - guessing * self.surcharge, -edge), edge) / spread
        self.level += level * error
        self.surcharge += surcharge * error
        self.level_variance -= level * level / spread
        self.covariance -= level * surcharge / spread
        self.surcharge_variance -= surcharge * surcharge / spread


class Pace:
    """Measured seconds of steps over the seconds of the cost curve, with and without guesses, by kind of step.

    The curve is measured over one sequence on an idle machine. Trees of many sequences cost more than as many rows of
    one sequence, and drafting takes cores away. The guesses have to pay for what a step with guesses takes beyond a
    plain step. A machine that slows down slows both, so each measurement updates both.
    """

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}
        self._steps = 0

    def __call__(self, kind: Hashable, guessing: bool) -> float:
        """Factor on the curve's seconds; 1 for a kind without measurements."""
        track = self._tracks.get(kind)
        return 1.0 if track is None else math.exp(track.level + guessing * track.surcharge)

    def surcharge(self, kind: Hashable) -> float:
        """Seconds of a step with guesses over those of a step without."""
        track = self._tracks.get(kind)
        return 1.0 if track is None else math.exp(track.surcharge)

    def learn(self, kind: Hashable, guessing: bool, expected: float, seconds: float) -> None:
        """Learns from a step that took ``seconds`` where the curve says ``expected``; outliers are clipped."""
        self._steps += 1
        track = self._tracks.setdefault(kind, _Track(last_step=self._steps))
        track.age(self._steps)
        track.learn(guessing, math.log(max(seconds / expected, _LEAST_FACTOR)))

    def fade(self, kind: Hashable) -> None:
        """Lowers the surcharge after a step that bought no guesses, so that guesses are tried again after a while."""
        if (track := self._tracks.get(kind)) is not None:
            track.surcharge *= 1 - _FADE


_NOISE, _LEVEL_DRIFT, _SURCHARGE_DRIFT = 0.02, 1e-4, 1e-6
_MOST_AGED_STEPS, _CLIP, _LEAST_FACTOR, _FADE = 400, 2.0, 1e-6, 0.01
_PRIOR, _MEMORY = 8.0, 0.995
EDGES = [1 / (1 + math.exp(-odds)) for odds in range(-7, 8)]
"""Confidences between bins."""
_CENTRES = [1 / (1 + math.exp(-odds - 0.5)) for odds in range(-8, 8)]


@dataclass(slots=True)
class Calibrator:
    """Turns a drafter's confidence into the share of such guesses that the target agreed with.

    Confidences fall into bins by their odds. Each bin starts at its own centre and learns from the target's decisions;
    older outcomes count less.
    """

    _hits: list[float] = field(default_factory=lambda: [_PRIOR * centre for centre in _CENTRES])
    _trials: list[float] = field(default_factory=lambda: [_PRIOR] * len(_CENTRES))
    _rates: list[float] = field(default_factory=lambda: list(_CENTRES))

    def __call__(self, confidence: float) -> float:
        """Probability that a guess of this confidence is right."""
        return self._rates[bisect_left(EDGES, confidence)]

    def learn(self, confidence: float, right: bool) -> None:
        """Learns whether a guess was right whose parent was right."""
        index = bisect_left(EDGES, confidence)
        self._hits[index] = hits = self._hits[index] * _MEMORY + right
        self._trials[index] = trials = self._trials[index] * _MEMORY + 1
        self._rates[index] = hits / trials


def buy(
    candidates: Sequence[MergedTree],
    caps: Sequence[int],
    rows: int,
    limit: int,
    cost: CostCurve,
    surcharge: float = 1.0,
    tenants: Sequence[str] | None = None,
    tenant_cap: int = 0,
) -> list[MergedTree]:
    """The guesses worth verifying in a step.

    Args:
        candidates: the guesses of each decoding sequence.
        caps: most guesses of each sequence.
        rows: rows of the step without guesses.
        limit: most guesses in the step.
        cost: seconds of a step by rows.
        surcharge: seconds of a step with guesses over those of a step without.
        tenants: tenant of each sequence; None for no cap on a tenant's guesses.
        tenant_cap: most guesses of one tenant.

    Returns:
        A sub-tree for each sequence; all empty when no guess pays.
    """
    ranked = sorted(
        (-value, owner, node) for owner, tree in enumerate(candidates) for node, value in enumerate(tree.values)
    )
    taken: list[set[int]] = [set() for _ in candidates]
    bought, best, expected, count = 0, len(candidates) / cost(rows), float(len(candidates)), 0
    order = []
    spent: Counter[str] = Counter()
    for value, owner, node in ranked:
        parent = candidates[owner].parents[node]
        if count >= limit:
            break
        if len(taken[owner]) >= caps[owner] or (parent >= 0 and parent not in taken[owner]):
            continue
        if tenants is not None:
            if spent[tenants[owner]] >= tenant_cap:
                continue
            spent[tenants[owner]] += 1
        taken[owner].add(node)
        order.append((owner, node))
        count, expected = count + 1, expected - value
        rate = expected / (cost(rows + count) * surcharge)
        if rate > best:
            best, bought = rate, count
    chosen: list[list[int]] = [[] for _ in candidates]
    for owner, node in order[:bought]:
        chosen[owner].append(node)
    return [tree.take(nodes) for tree, nodes in zip(candidates, chosen, strict=True)]
