"""The verifier's metrics."""

from __future__ import annotations

import time
from collections import Counter

from outrider.mesh.telemetry import counter, gauge, get_logger
from outrider.models.speculation import Acceptance
from outrider.verifier.decode.engine import Engine
from outrider.verifier.decode.outcome import Tally
from outrider.verifier.scheduling.scheduler import Scheduler
from outrider.verifier.speculation.counts import Counts

_STEPS = counter("verifier_steps", "Forward passes of the target.")
_ROWS = counter("verifier_rows", "Rows over all forward passes.")
_TOKENS = counter("verifier_tokens", "Tokens generated.")
_PREFILLED = counter("verifier_prefilled_tokens", "Prompt tokens computed.")
_PREEMPTED = counter("verifier_preemptions", "Preemptions: a sequence lost its pages and waits again.")
_EXPIRED = counter("verifier_expired_requests", "Requests whose deadline passed, in the queue or later.")
_UNMEETABLE = counter("verifier_unmeetable_requests", "Requests refused because they would miss their deadline.")
_CROWDED_STEPS = counter("verifier_crowded_steps", "Forward passes while requests waited.")
_CROWDED = counter("verifier_crowded_sequences", "Running sequences over the forward passes while requests waited.")
_CROWDED_TOKENS = counter("verifier_crowded_tokens", "Tokens generated while requests waited.")
_CROWDED_SECONDS = counter("verifier_crowded_seconds", "Time of forward passes while requests waited.")
_BY = ["drafter", "depth"]
_DRAFTED = counter(
    "spec_drafted_tokens", "Guesses that a step could have bought; depth 1 is the token behind the next.", _BY
)
_BOUGHT = counter("spec_bought_tokens", "Guesses verified.", _BY)
_ACCEPTED = counter("spec_accepted_tokens", "Guesses accepted.", _BY)
_UNUSABLE = counter(
    "spec_unusable_trees", "Refused trees: unknown ids, or not drawn as the rule of acceptance needs.", ["drafter"]
)
_EXPOSED = counter("spec_exposed_drafting_seconds", "Time for which steps waited for a drafter.", ["drafter"])
_STEP = counter("spec_step_seconds", "Time of steps without prompts, predicted and real.", ["kind"])
_ASKED = gauge("spec_drafter_asked", "1 if the drafter is asked, 0 if it is paused because it loses time.", ["drafter"])
_LOSSY = gauge("spec_lossy", "1 if the rule of acceptance changes the distribution of answers.")
_RUNNING = gauge("verifier_running_requests", "Requests in the current step.")
_WAITING = gauge("verifier_waiting_requests", "Requests in the queue.")
_FREE = gauge("verifier_free_pages", "KV pages that could be allocated.")
_UTILIZATION = gauge("verifier_kv_utilization", "Share of the KV pages that requests or pins hold.")
_PINNED = gauge("verifier_pinned_pages", "KV pages pinned for named prompts.")
_YIELDED = counter("verifier_yielded_pages", "Pinned pages released because a request needed the room.")
_REUSED = counter("verifier_prefix_hit_tokens", "Prompt tokens found in pages and not computed.")
_EVICTED = counter(
    "verifier_evicted_pages", "Cached pages evicted, by what needed the room: sequence, guesses, fetched.", ["cause"]
)

_MOST_RETRY_S = 30.0

_log = get_logger("verifier")


class Metrics:
    """Copies the engine's tallies to Prometheus, and estimates the queue's delay from the rate of ended requests."""

    def __init__(self) -> None:
        self._reported, self._preempted = Tally(), 0
        self._finished = 0
        self._page_metrics = _PageMetrics()
        self._since = time.monotonic()
        self._waiting = 0

    def update(self, engine: Engine) -> None:
        """Adds the changes since the last call."""
        tally, reported = engine.tally, self._reported
        _STEPS.inc(tally.steps - reported.steps)
        _ROWS.inc(tally.rows - reported.rows)
        _TOKENS.inc(tally.tokens - reported.tokens)
        _PREFILLED.inc(tally.prefilled - reported.prefilled)
        self._guesses(tally.guesses, reported.guesses, engine.guessing.paused)
        reported.steps, reported.rows, reported.tokens, reported.prefilled = (
            tally.steps,
            tally.rows,
            tally.tokens,
            tally.prefilled,
        )
        self._schedule(engine)
        self._page_metrics.update(engine.scheduler)

    def _schedule(self, engine: Engine) -> None:
        tally, reported, scheduler = engine.tally, self._reported, engine.scheduler
        _CROWDED_STEPS.inc(tally.crowded_steps - reported.crowded_steps)
        _CROWDED.inc(tally.crowded_sequences - reported.crowded_sequences)
        reported.crowded_steps, reported.crowded_sequences = tally.crowded_steps, tally.crowded_sequences
        _CROWDED_TOKENS.inc(tally.crowded_tokens - reported.crowded_tokens)
        _CROWDED_SECONDS.inc(tally.crowded_seconds - reported.crowded_seconds)
        reported.crowded_tokens, reported.crowded_seconds = tally.crowded_tokens, tally.crowded_seconds
        _EXPIRED.inc(tally.expired - reported.expired)
        reported.expired = tally.expired
        preempted = scheduler.preempted
        _PREEMPTED.inc(preempted - self._preempted)
        self._preempted = preempted
        self._waiting = len(scheduler.waiting)
        _RUNNING.set(len(scheduler.running))
        _WAITING.set(self._waiting)

    def _guesses(self, now: Counts, reported: Counts, paused: frozenset[str]) -> None:
        pairs = ((_DRAFTED, now.drafted, reported.drafted), (_BOUGHT, now.bought, reported.bought))
        for metric, counts, before in (*pairs, (_ACCEPTED, now.accepted, reported.accepted)):
            for (drafter, depth), count in list(counts.items()):
                metric.labels(drafter, str(depth)).inc(count - before[drafter, depth])
                before[drafter, depth] = count
                _ASKED.labels(drafter).set(drafter not in paused)
        for drafter, trees in list(now.unusable.items()):
            if not reported.unusable[drafter]:
                _log.warning(
                    "guesses are not used: unknown ids, or not drawn as the rule of acceptance needs", drafter=drafter
                )
            _UNUSABLE.labels(drafter).inc(trees - reported.unusable[drafter])
            reported.unusable[drafter] = trees
        for drafter, seconds in list(now.exposed.items()):
            _EXPOSED.labels(drafter).inc(seconds - reported.exposed[drafter])
            reported.exposed[drafter] = seconds
        _STEP.labels("predicted").inc(now.predicted - reported.predicted)
        _STEP.labels("real").inc(now.real - reported.real)
        reported.predicted, reported.real = now.predicted, now.real

    def rule(self, rule: Acceptance) -> None:
        """Notes the rule of acceptance."""
        _LOSSY.set(rule.lossy)
        if rule.lossy:
            _log.warning("guesses are accepted by a rule that changes the answers' distribution", acceptance=rule.name)

    def unmeetable(self) -> None:
        """Counts a request refused for its deadline."""
        _UNMEETABLE.inc()

    def finished(self) -> None:
        """Counts a request that ended."""
        self._finished += 1

    def queue_seconds(self) -> float:
        """Estimated seconds until the queue has room, from the rate at which requests have ended so far."""
        rate = self._finished / max(time.monotonic() - self._since, 1e-3)
        return min(max(1.0, 1.0 / rate if rate > 0 else _MOST_RETRY_S), _MOST_RETRY_S)


class _PageMetrics:
    """Copies the counters of scheduler and pages to Prometheus."""

    def __init__(self) -> None:
        self._reused = self._yielded = 0
        self._evicted: Counter[str] = Counter()

    def update(self, scheduler: Scheduler) -> None:
        """Adds the changes since the last call."""
        pages, pins = scheduler.pages, scheduler.pins
        _FREE.set(pages.available)
        _UTILIZATION.set(1 - pages.available / pages.total)
        _PINNED.set(pins.count)
        reused, yielded = scheduler.reused, pins.yielded
        _REUSED.inc(reused - self._reused)
        _YIELDED.inc(yielded - self._yielded)
        self._reused, self._yielded = reused, yielded
        for cause, count in list(pages.evictions.items()):
            _EVICTED.labels(cause).inc(count - self._evicted[cause])
            self._evicted[cause] = count
