"""Metrics of the verifier's own pages."""

from __future__ import annotations

from outrider.engine.scheduling.scheduler import Scheduler
from outrider.mesh.telemetry import counter, gauge
from outrider.verifier.metrics.totals import Totals

_MODEL = ["model"]
_FREE = gauge("verifier_free_pages", "KV pages that could be allocated.", _MODEL)
_UTILIZATION = gauge("verifier_kv_utilization", "Share of the KV pages that requests or pins hold.", _MODEL)
_PINNED = gauge("verifier_pinned_pages", "KV pages pinned for named prompts.", _MODEL)
_YIELDED = counter("verifier_yielded_pages", "Pinned pages released because a request needed the room.", _MODEL)
_REUSED = counter("verifier_prefix_hit_tokens", "Prompt tokens found in pages and not computed.", _MODEL)
_PREFIX = counter(
    "verifier_prefix_tokens",
    "Prompt tokens by where their pages came from: verifier (found here), kvcache, peer (another verifier computed "
    "them), or computed.",
    ["model", "tier"],
)
_EVICTED = counter(
    "verifier_evicted_pages",
    "Cached pages evicted, by what needed the room: sequence, guesses, fetched, audit.",
    ["model", "cause"],
)


class PageMetrics:
    """Copies the counters of scheduler and pages."""

    def __init__(self, model: str) -> None:
        self._model, self._totals = model, Totals()

    def update(self, scheduler: Scheduler) -> None:
        """Adds the changes since the last call."""
        pages, pins, model = scheduler.pages, scheduler.pins, self._model
        _FREE.labels(model).set(pages.available)
        _UTILIZATION.labels(model).set(1 - pages.available / pages.total)
        _PINNED.labels(model).set(pins.count)
        self._totals.bring(_REUSED, scheduler.reused, model)
        self._totals.bring(_YIELDED, pins.yielded, model)
        for tier, tokens in list(scheduler.prefixes.items()):
            self._totals.bring(_PREFIX, tokens, model, tier)
        for cause, count in list(pages.evictions.items()):
            self._totals.bring(_EVICTED, count, model, cause)
