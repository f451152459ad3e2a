"""Whether two samples come from one distribution: the U test of Mann and Whitney (1947)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p value: how often two samples of one distribution differ as much or more.

    By the normal approximation, corrected for ties and continuity, which holds from some twenty values on. NaN for an
    empty sample.
    """
    count = len(one) + len(other)
    if not one or not other:
        return math.nan
    ordered = Counter([*one, *other])
    rank, ranks, ties = 0, dict[float, float](), 0
    for value in sorted(ordered):
        same = ordered[value]
        ranks[value] = rank + (same + 1) / 2
        rank, ties = rank + same, ties + same**3 - same
    u = sum(ranks[value] for value in one) - len(one) * (len(one) + 1) / 2
    variance = len(one) * len(other) / 12 * (count + 1 - ties / (count * (count - 1)))
    if not variance:
        return 1.0
    distance = max(0.0, abs(u - len(one) * len(other) / 2) - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))
