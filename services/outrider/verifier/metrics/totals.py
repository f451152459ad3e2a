"""Brings Prometheus' counters to the engine's running totals."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.mesh.telemetry import Distribution
from prometheus_client import Counter


class Totals:
    """Adds to counters what running totals have grown by since this object was made or last brought them up."""

    def __init__(self) -> None:
        self._children: dict[tuple[Counter, tuple[str, ...]], tuple[Counter, float]] = {}

    def bring(self, counter: Counter, total: float, *labels: str) -> None:
        """Brings the child of ``counter`` with these values of its labels to ``total``; it shows from then on."""
        child, reported = self._children.get((counter, labels)) or (counter.labels(*labels), 0.0)
        grown = max(total - reported, 0.0)
        if grown or not reported:
            child.inc(grown)
            self._children[counter, labels] = child, reported + grown

    def bring_all(self, totals: Mapping[Counter, float], *labels: str) -> None:
        """As `bring`, for several counters with the same values of their labels."""
        for counter, total in totals.items():
            self.bring(counter, total, *labels)


def shown(distribution: object) -> Distribution:
    """A distribution of the engine's tally, which the verifier's telemetry has made."""
    assert isinstance(distribution, Distribution)
    return distribution
