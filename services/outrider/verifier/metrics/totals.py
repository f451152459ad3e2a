"""Brings Prometheus' counters to the engine's running totals."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter


class Totals:
    """Adds to counters what running totals have grown by since this object was made or last brought them up."""

    def __init__(self) -> None:
        self._reported: dict[tuple[Counter, tuple[str, ...]], float] = {}

    def bring(self, counter: Counter, total: float, *labels: str) -> None:
        """Brings the child of ``counter`` with these values of its labels to ``total``."""
        grown = total - self._reported.get((counter, labels), 0.0)
        if grown > 0:
            counter.labels(*labels).inc(grown)
            self._reported[counter, labels] = total

    def bring_all(self, totals: Mapping[Counter, float], *labels: str) -> None:
        """As `bring`, for several counters with the same values of their labels."""
        for counter, total in totals.items():
            self.bring(counter, total, *labels)
