"""How many guesses a step buys: those whose expected tokens are worth the time they add.

The step over n rows takes t(n), measured at start. Over all running sequences the candidate guesses are ranked by
the probability that they are right; the first B are bought, with B the one that maximizes expected tokens over time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from outrider.models.speculation import MergedTree
from outrider.verifier.scheduling.cost_curve import CostCurve


@dataclass(slots=True)
class _Track:
    """What is known of one kind of step: logarithms of its level and of what guesses add, and how sure they are.

    A Kalman filter (Kalman 1960) of two states, seen one at a time in plain steps and as their sum in others.
    """

    level: float = 0.0
    surcharge: float = 0.0
    variance: float = 4.0
    shared: float = 0.0
    doubt: float = 0.04
    seen: int = 0

    def age(self, now: int) -> None:
        """The machine's speed drifts from step to step, whoever makes them; what guesses add hardly does."""
        steps, self.seen = min(now - self.seen, _LONG), now
        self.variance += _DRIFT * steps
        self.doubt += _WANDER * steps

    def learn(self, guessing: bool, seen: float) -> None:
        """Takes in a factor's logarithm; one that is far off counts as one at the edge of what is likely."""
        level, surcharge = self.variance + guessing * self.shared, self.shared + guessing * self.doubt
        spread = level + guessing * surcharge + _NOISE
        edge = _LIKELY * math.sqrt(spread)
        error = min(max(seen - self.level - guessing * self.surcharge, -edge), edge) / spread
        self.level += level * error
        self.surcharge += surcharge * error
        self.variance -= level * level / spread
        self.shared -= level * surcharge / spread
        self.doubt -= surcharge * surcharge / spread


class Pace:
    """How much longer steps really take than the curve says, with guesses and without, by what kind of step they are.

    The curve is measured over one sequence on a machine at rest. Trees of many sequences cost more than as many rows of
    one, and drafting takes cores away; what a step with guesses takes beyond a plain one has to be paid by the guesses.
    A machine that gets slower, or quicker, does so for both: either kind of step tells of the other as well.
    """

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}
        self._steps = 0

    def __call__(self, kind: Hashable, guessing: bool) -> float:
        """Factor on the curve's seconds: as for the other steps of the kind while only those are known."""
        track = self._tracks.get(kind)
        return 1.0 if track is None else math.exp(track.level + guessing * track.surcharge)

    def surcharge(self, kind: Hashable) -> float:
        """Factor on the seconds of a step with guesses, beside one without."""
        track = self._tracks.get(kind)
        return 1.0 if track is None else math.exp(track.surcharge)

    def learn(self, kind: Hashable, guessing: bool, expected: float, seconds: float) -> None:
        """Takes in a step that was expected to take ``expected`` seconds and took ``seconds``.

        Single steps that something else held up count for little.
        """
        self._steps += 1
        track = self._tracks.setdefault(kind, _Track(seen=self._steps))
        track.age(self._steps)
        track.learn(guessing, math.log(max(seconds / expected, _LEAST_SEEN)))

    def fade(self, kind: Hashable) -> None:
        """Takes in a step whose guesses were not worth buying: after a while they are tried again."""
        if (track := self._tracks.get(kind)) is not None:
            track.surcharge *= 1 - _FADE


_NOISE, _DRIFT, _WANDER = 0.02, 1e-4, 1e-6
_LONG, _LIKELY, _LEAST_SEEN, _FADE = 400, 2.0, 1e-6, 0.01
_PRIOR, _KEEP = 8.0, 0.995
EDGES = [1 / (1 + math.exp(-odds)) for odds in range(-7, 8)]
"""Confidences between bins."""
_CENTRES = [1 / (1 + math.exp(-odds - 0.5)) for odds in range(-8, 8)]


@dataclass(slots=True)
class Calibrator:
    """Turns a drafter's confidence into how often such guesses came true.

    Confidences fall into bins by their odds; each bin starts from its own centre and learns from what the target said,
    older outcomes counting less.
    """

    _hits: list[float] = field(default_factory=lambda: [_PRIOR * centre for centre in _CENTRES])
    _trials: list[float] = field(default_factory=lambda: [_PRIOR] * len(_CENTRES))
    _rates: list[float] = field(default_factory=lambda: list(_CENTRES))

    def __call__(self, confidence: float) -> float:
        """Probability that a guess of this confidence is right."""
        return self._rates[bisect_left(EDGES, confidence)]

    def learn(self, confidence: float, right: bool) -> None:
        """Takes in one outcome of a guess whose parent was right."""
        index = bisect_left(EDGES, confidence)
        self._hits[index] = hits = self._hits[index] * _KEEP + right
        self._trials[index] = trials = self._trials[index] * _KEEP + 1
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
        candidates: each decoding sequence's guesses.
        caps: most guesses each may have.
        rows: rows the step has without guesses.
        limit: most guesses in the step.
        cost: seconds of a step by rows.
        surcharge: factor on the seconds of a step with guesses, beside one without.
        tenants: whose each sequence is, where what a tenant buys is capped.
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
