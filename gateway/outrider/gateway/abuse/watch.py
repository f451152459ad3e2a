"""The rules of abuse."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from outrider.gateway import metrics
from outrider.gateway.abuse.counts import Counts
from outrider.gateway.abuse.sample import Sample, Source
from outrider.gateway.settings import AbuseSettings
from outrider.mesh.telemetry import audit

_MOST = 4096
"""Most keys and tenants, and most addresses, that are watched; the one that was idle longest is dropped."""
_LEAST_USUAL = 1.0

Finding = tuple[str, float, float]
"""A signal, its count, and the most that is not suspect."""


class Watch:
    """Counts what callers do, and gives each signal of a caller once a window."""

    def __init__(self, settings: AbuseSettings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings or AbuseSettings(), clock
        self._known: OrderedDict[str, Counts] = OrderedDict()
        self._addresses: OrderedDict[str, Counts] = OrderedDict()

    def refused(self, source: Source) -> None:
        """Counts a refused request."""
        for name, counts in self._counts(source):
            counts.refusals += 1
            self._signal(name, counts, source, [("refusals", counts.refusals, self._settings.refusals)])

    def asked(self, source: Source, samples: Sequence[Sample]) -> float:
        """Counts a request with these prompts; returns the seconds by which it should be delayed."""
        suspect = False
        for name, counts in self._counts(source):
            counts.requests += 1
            findings = [self._rate(counts), *(finding for sample in samples for finding in self._looks(counts, sample))]
            self._signal(name, counts, source, findings)
            suspect |= counts.suspect_until >= self._window()
        return self._settings.delay_s if suspect else 0.0

    def _rate(self, counts: Counts) -> Finding:
        usual, rules = counts.usual_requests, self._settings
        if usual is None or not rules.rate_factor:
            return "request_rate", 0, 0
        most = max(rules.rate_factor * max(usual, _LEAST_USUAL), rules.rate_least)
        return "request_rate", counts.requests, most

    def _looks(self, counts: Counts, sample: Sample) -> Iterator[Finding]:
        rules = self._settings
        if sample.random:
            yield "repeated_prompt", counts.prompts.add(sample.prompt, sample.choices), rules.prompt_choices
        if sample.short:
            yield "repeated_prefix", counts.beginnings.add(sample.beginning, 1), rules.prefix_requests
        if sample.logprobs:
            counts.logprobs += 1
            yield "logprobs", counts.logprobs, rules.logprobs_requests

    def _signal(self, name: str, counts: Counts, source: Source, findings: Sequence[Finding]) -> None:
        """Gives the signals of ``findings`` that were not given in this window; one whose most is 0 is off."""
        for signal, count, most in findings:
            if not most or count <= most or signal in counts.signals:
                continue
            counts.signals.add(signal)
            counts.suspect_until = self._window() + 1
            metrics.abuse_signals.labels(signal).inc()
            why = f"{count:g} in {self._settings.window_s:g} s, more than {most:g}"
            audit(
                "abuse_suspected",
                actor=source.actor,
                tenant=source.tenant,
                address=source.address,
                subject=f"{signal} of {name}",
                reason=why,
            )

    def _counts(self, source: Source) -> Iterator[tuple[str, Counts]]:
        entries, window = self._known if source.known else self._addresses, self._window()
        for name in source.counted:
            counts = entries.pop(name, None) or Counts(window)
            counts.roll(window)
            entries[name] = counts
            if len(entries) > _MOST:
                entries.popitem(last=False)
            yield name, counts

    def _window(self) -> int:
        return int(self._clock() // self._settings.window_s)
