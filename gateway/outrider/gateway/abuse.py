"""Notices callers whose requests look like abuse, by plain counts of the last minute, and may slow them down.

In come refused requests and samples of accepted ones; out go metrics, lines of the audit log, and delays.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import msgspec
from outrider.gateway import metrics
from outrider.gateway.settings import AbuseSettings
from outrider.mesh.telemetry import audit


class Sample(msgspec.Struct, frozen=True):
    """A prompt of a request.

    Attributes:
        prompt: a hash of the prompt.
        beginning: a hash of its first characters.
        choices: answers to it.
        random: whether answers may differ: the temperature is above 0.
        short: whether an answer may have 4 tokens at most.
        logprobs: whether it is short and asks for 10 log-probabilities a token, or more.
    """

    prompt: int
    beginning: int
    choices: int = 1
    random: bool = False
    short: bool = False
    logprobs: bool = False


class Source(msgspec.Struct, frozen=True):
    """Who sent a request. Without a ``tenant`` the ``actor`` is only who the sender claims to be."""

    actor: str = ""
    tenant: str = ""
    address: str = ""

    @property
    def known(self) -> bool:
        """Whether the request has a valid key."""
        return bool(self.actor and self.tenant)

    @property
    def counted(self) -> tuple[str, ...]:
        """Names under which the request counts: its key and its tenant, or its address."""
        return (self.actor, f"tenant {self.tenant}") if self.known else (f"address {self.address}",)


_MOST_TEXTS = 16
"""Prompts, and beginnings of prompts, that are counted at a time; the one that came longest ago is dropped."""
_MEMORY = 60
"""Windows over which the mean of requests forgets."""


class TextCounts:
    """Counts of the texts that came last, by their hashes."""

    def __init__(self) -> None:
        self._counts: OrderedDict[int, int] = OrderedDict()

    def add(self, text: int, amount: int) -> int:
        """Counts ``text``; returns its count."""
        count = self._counts[text] = self._counts.pop(text, 0) + amount
        if len(self._counts) > _MOST_TEXTS:
            self._counts.popitem(last=False)
        return count


class Counts:
    """Counts of one window of time, and the mean of requests in the windows before.

    Attributes:
        signals: the signals given in this window.
        suspect_until: the window up to which the caller may be slowed down.
    """

    def __init__(self, window: int) -> None:
        self._window, self._windows, self._mean = window, 0, 0.0
        self.suspect_until = -1
        self._clear()

    def roll(self, window: int) -> None:
        """Begins a new window if ``window`` is later than the present one."""
        passed = window - self._window
        if passed <= 0:
            return
        keep = 1 - 1 / _MEMORY
        self._mean = (self._mean * keep + self.requests / _MEMORY) * keep ** (passed - 1)
        self._window, self._windows = window, self._windows + passed
        self._clear()

    @property
    def usual_requests(self) -> float | None:
        """The mean of requests in a window, of those before this one; None before there have been ten.

        An exponentially weighted mean, corrected for its beginning at 0 (Kingma and Ba 2015, section 3).
        """
        if self._windows < 10:
            return None
        return self._mean / (1 - (1 - 1 / _MEMORY) ** self._windows)

    def _clear(self) -> None:
        self.requests = self.refusals = self.logprobs = 0
        self.prompts, self.beginnings = TextCounts(), TextCounts()
        self.signals: set[str] = set()


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
