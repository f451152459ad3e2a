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


class Pace:
    """Measured seconds of plain steps over the seconds of the cost curve, by kind of step.

    The curve is measured over one sequence on an idle machine; a busy machine and long sequences take longer.
    """

    def __init__(self) -> None:
        self._factors: dict[Hashable, float] = {}

    def __call__(self, kind: Hashable) -> float:
        """Factor on the curve's seconds; 1 for a kind without measurements."""
        return self._factors.get(kind, 1.0)

    def learn(self, kind: Hashable, expected: float, seconds: float) -> None:
        """Learns from a step that took ``seconds`` where the curve says ``expected``."""
        measured = seconds / expected
        usual = self._factors.get(kind) or measured  # a factor of 0 could not grow
        self._factors[kind] = usual + (min(measured, _OUTLIER * usual) - usual) * _LEARN


# A mean of about 32 steps follows a machine whose speed drifts; a step far above the mean was held up by others.
_LEARN, _OUTLIER = 1 / 32, 3.0
# The drafter's own confidence weighs as much as 8 outcomes, so that a new drafter is believed first and corrected soon.
# The memory is about 200 outcomes a bin: enough for a share to within 3 %, and it follows another kind of text.
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
        rate = expected / cost(rows + count)
        if rate > best:
            best, bought = rate, count
    chosen: list[list[int]] = [[] for _ in candidates]
    for owner, node in order[:bought]:
        chosen[owner].append(node)
    return [tree.take(nodes) for tree, nodes in zip(candidates, chosen, strict=True)]
