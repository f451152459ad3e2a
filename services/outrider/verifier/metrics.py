"""What a verifier measures of itself."""

from __future__ import annotations

import time

from outrider.mesh.telemetry import counter, gauge
from outrider.models.pages import PageTable
from outrider.verifier.engine import Engine, Tally

_STEPS = counter("verifier_steps", "Forward passes of the target.")
_ROWS = counter("verifier_rows", "Rows over all forward passes.")
_TOKENS = counter("verifier_tokens", "Tokens generated.")
_PREFILLED = counter("verifier_prefilled_tokens", "Prompt tokens computed.")
_GUESSED = counter("spec_bought_tokens", "Guesses verified.", ["drafter"])
_ACCEPTED = counter("spec_accepted_tokens", "Guesses that the target agreed with.", ["drafter"])
_RUNNING = gauge("verifier_running_requests", "Requests in the current step.")
_WAITING = gauge("verifier_waiting_requests", "Requests in the queue.")
_FREE = gauge("verifier_free_pages", "KV pages that could be allocated.")

_MOST_RETRY_S = 30.0


class Metrics:
    """Carries the engine's tallies over to Prometheus, and estimates the queue's delay from them."""

    def __init__(self) -> None:
        self._seen = Tally()
        self._finished = 0
        self._since = time.monotonic()
        self._waiting = 0

    def update(self, engine: Engine, pages: PageTable) -> None:
        """Takes in what has happened since the last time."""
        tally, seen = engine.tally, self._seen
        _STEPS.inc(tally.steps - seen.steps)
        _ROWS.inc(tally.rows - seen.rows)
        _TOKENS.inc(tally.tokens - seen.tokens)
        _PREFILLED.inc(tally.prefilled - seen.prefilled)
        for drafter, count in list(tally.guessed.items()):
            _GUESSED.labels(drafter).inc(count - seen.guessed[drafter])
            seen.guessed[drafter] = count
        for drafter, count in list(tally.accepted.items()):
            _ACCEPTED.labels(drafter).inc(count - seen.accepted[drafter])
            seen.accepted[drafter] = count
        seen.steps, seen.rows, seen.tokens, seen.prefilled = tally.steps, tally.rows, tally.tokens, tally.prefilled
        self._waiting = len(engine.scheduler.waiting)
        _RUNNING.set(len(engine.scheduler.running))
        _WAITING.set(self._waiting)
        _FREE.set(pages.available)

    def finished(self) -> None:
        """Notes the end of a request."""
        self._finished += 1

    def queue_seconds(self) -> float:
        """Estimated seconds until the queue has room: at the rate at which requests have ended so far."""
        rate = self._finished / max(time.monotonic() - self._since, 1e-3)
        return min(max(1.0, 1.0 / rate if rate > 0 else _MOST_RETRY_S), _MOST_RETRY_S)
