"""What a verifier measures of its KV pages."""

from __future__ import annotations

from collections import Counter

from outrider.mesh.telemetry import counter, gauge
from outrider.verifier.scheduler import Scheduler

_FREE = gauge("verifier_free_pages", "KV pages that could be allocated.")
_UTILIZATION = gauge("verifier_kv_utilization", "Share of the KV pages that requests or pins hold.")
_PINNED = gauge("verifier_pinned_pages", "KV pages that are held for named prompts.")
_YIELDED = counter("verifier_yielded_pages", "Pinned pages that were let go of because a request needed the room.")
_FOUND = counter("verifier_prefix_hit_tokens", "Prompt tokens that were found in pages and not computed.")
_EVICTED = counter(
    "verifier_evicted_pages", "Cached pages that gave way, by what for: sequence, guesses, fetched.", ["cause"]
)


class PageMetrics:
    """Carries what scheduler and pages count over to Prometheus."""

    def __init__(self) -> None:
        self._found = self._yielded = 0
        self._evicted: Counter[str] = Counter()

    def update(self, scheduler: Scheduler) -> None:
        """Takes in what has happened since the last time."""
        pages, pins = scheduler.pages, scheduler.pins
        _FREE.set(pages.available)
        _UTILIZATION.set(1 - pages.available / pages.total)
        _PINNED.set(pins.count)
        found, yielded = scheduler.found, pins.yielded
        _FOUND.inc(found - self._found)
        _YIELDED.inc(yielded - self._yielded)
        self._found, self._yielded = found, yielded
        for cause, count in list(pages.evictions.items()):
            _EVICTED.labels(cause).inc(count - self._evicted[cause])
            self._evicted[cause] = count
