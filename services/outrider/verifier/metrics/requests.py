"""Metrics of requests: the queue, the time of each part of a request, and refusals."""

from __future__ import annotations

import time

from outrider.engine.decode.engine import Engine
from outrider.mesh.telemetry import counter, distributions, gauge
from outrider.verifier.metrics.totals import Totals, shown

_MODEL = ["model"]
_RUNNING = gauge("verifier_running_requests", "Requests in the current step.", _MODEL)
_WAITING = gauge("verifier_waiting_requests", "Requests in the queue.", _MODEL)
_OLDEST = gauge("verifier_oldest_wait_seconds", "Time that the oldest request in the queue has waited.", _MODEL)
_QUEUE = distributions("verifier_queue_seconds", "From the submission of a request to its first step.", _MODEL)
_PREFILL = distributions("verifier_prefill_seconds", "From a request's first step to its first token.", _MODEL)
_DECODE = distributions("verifier_decode_seconds", "From a request's first token to its end.", _MODEL)
_PREEMPTED = counter("verifier_preemptions", "Preemptions: a sequence lost its pages and waits again.", _MODEL)
_EXPIRED = counter("verifier_expired_requests", "Requests whose deadline passed, in the queue or later.", _MODEL)
_REFUSED_DRAWS = counter(
    "verifier_refused_draws", "Requests that failed because logits, dice or mask of a draw belonged elsewhere.", _MODEL
)
_AUDITED = counter(
    "verifier_audited",
    "Finished answers that verifier.audit_share chose for a replay, by outcome: same, different (a token was not the "
    "target's), cancelled (under load, or out of pages), skipped (a slow grammar), failed.",
    ["model", "outcome"],
)
_UNMEETABLE = counter(
    "verifier_unmeetable_requests", "Requests refused because they would miss their deadline.", _MODEL
)


class RequestMetrics:
    """Copies the state of the queue and the totals of requests."""

    def __init__(self, model: str, engine: Engine) -> None:
        self._model, self._engine, self._totals = model, engine, Totals()
        times = engine.tally.times
        for metric, distribution in ((_QUEUE, times.queue), (_PREFILL, times.prefill), (_DECODE, times.decode)):
            metric.show(shown(distribution), model)
        _OLDEST.labels(model).set_function(self._oldest_wait)

    def update(self) -> None:
        """Adds the changes since the last call."""
        tally, scheduler = self._engine.tally, self._engine.scheduler
        self._totals.bring(_PREEMPTED, scheduler.preempted, self._model)
        self._totals.bring(_EXPIRED, tally.expired, self._model)
        self._totals.bring(_REFUSED_DRAWS, tally.refused_draws, self._model)
        for outcome, count in self._engine.auditor.outcomes.items():
            self._totals.bring(_AUDITED, count, self._model, outcome)
        _RUNNING.labels(self._model).set(len(scheduler.running))
        _WAITING.labels(self._model).set(len(scheduler.waiting))

    def unmeetable(self) -> None:
        """Counts a request refused for its deadline."""
        _UNMEETABLE.labels(self._model).inc()

    def _oldest_wait(self) -> float:
        since = self._engine.tally.oldest_since
        return time.monotonic() - since if since and self._engine.scheduler.waiting else 0.0
