"""Compares two results rate by rate, and says which differences are more than noise."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from outrider.measure.ramp.figures import MORE_IS_BETTER, NAMES, draws
from outrider.measure.ramp.result import Result, ResultError
from rich.table import Table

Verdict = Literal["better", "worse", "noise"]
CHANCE = 0.05
"""Probability that noise alone makes one or more of all differences of a comparison."""
_SKIPPED = frozenset({"requests_per_s", "good"})


class Difference(msgspec.Struct, frozen=True):
    """A figure at a rate: both values, the second to the first, and the interval of that ratio."""

    rate: float
    name: str
    before: float
    after: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """The second value to the first."""
        return self.after / self.before if self.before else float("nan")

    @property
    def verdict(self) -> Verdict:
        """Whether the interval leaves out 1, and on which side."""
        if not (self.low > 1 or self.high < 1):
            return "noise"
        return "better" if (self.low > 1) == (self.name in MORE_IS_BETTER) else "worse"


def compare(before: Result, after: Result) -> list[Difference]:
    """All figures at all rates that both results have, judged by the first result's SLO.

    The intervals are those of Bonferroni: noise alone makes a difference in one of twenty comparisons.

    Raises:
        ResultError: the results have no rate in common.
    """
    rates = [rate for rate in before.rates if rate in after.rates]
    if not rates:
        raise ResultError("the results have no rate in common; measure both with the same --rates")
    names = [name for name in NAMES.values() if name not in _SKIPPED]
    tail = 100 * CHANCE / (len(rates) * len(names)) / 2
    found = []
    for rate in rates:
        old, new = (
            draws(result.rates[rate], before.slo, np.random.default_rng(n)) for n, result in enumerate((before, after))
        )
        for name in names:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = new[name][1:] / old[name][1:]
                low, high = np.nanpercentile(ratios, [tail, 100 - tail]) if np.isfinite(ratios).any() else (0.0, np.inf)
            found.append(Difference(rate, name, float(old[name][0]), float(new[name][0]), float(low), float(high)))
    return found


def verdict(before: Result, after: Result, found: list[Difference]) -> str:
    """The comparison in one or two sentences."""
    changed = [difference for difference in found if difference.verdict != "noise"]
    worse = sum(difference.verdict == "worse" for difference in changed)
    text = f"{len(found)} figures: {worse} worse, {len(changed) - worse} better, the others within the noise."
    if any(len(levels) < 2 for result in (before, after) for levels in result.rates.values()):
        text += " A rate was measured only once: the noise between runs is unknown and left out (--repeats 3 or more)."
    return text


def table(found: list[Difference], everything: bool) -> Table:
    """Differences that are more than noise, or all."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("rate/s", "figure", "before", "after", "ratio", "interval", "verdict"):
        shown.add_column(head, justify="left" if head in ("figure", "verdict") else "right")
    titles = {name: title for title, name in NAMES.items()}
    for each in found:
        if everything or each.verdict != "noise":
            interval = f"{each.low:.2f} to {each.high:.2f}"
            values = f"{each.before:.3g}", f"{each.after:.3g}", f"{each.ratio:.2f}", interval
            shown.add_row(f"{each.rate:.3g}", titles[each.name], *values, each.verdict)
    return shown
