"""What the engine reports of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.engine.requests.output import Output
from outrider.engine.requests.sequence import Request
from outrider.engine.speculation import Opening
from outrider.engine.speculation.drafters.states import States
from outrider.engine.speculation.policy.counts import Counts
from outrider.engine.telemetry import Distribution, Telemetry

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bounds of rows and of sequences in a step."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds of seconds of a request's parts."""
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Bounds of tokens that a step adds to a sequence."""


@dataclass(frozen=True, slots=True)
class OpenedSequence:
    """A new sequence for remote drafters."""

    number: int
    opening: Opening
    request: Request


@dataclass(slots=True)  # a frozen one takes three times as long to make, and each sequence of a step makes one
class CommittedTokens:
    """Tokens that the target decided behind ``length`` others."""

    number: int
    length: int
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class CommittedStates:
    """States of decided tokens from ``start`` on, for remote drafters; the tokens come before them."""

    number: int
    start: int
    states: States


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Place of a new request: sequences ahead of it, and expected seconds until its first token."""

    ahead: int
    first_s: float


@dataclass(slots=True)
class Outcome:
    """What a step did: outputs for readers, the rest for remote drafters. ``paused`` names the paused drafters.

    ``spans`` has the step's span in the trace of each request, by request id, for requests whose trace is kept.
    """

    outputs: list[tuple[Request, Output]] = field(default_factory=list)
    opened: list[OpenedSequence] = field(default_factory=list)
    committed: list[CommittedTokens] = field(default_factory=list)
    states: list[CommittedStates] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    paused: frozenset[str] = frozenset()
    spans: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Seconds of requests: in the queue, until the first token, and from there to the end."""

    queue: Distribution
    prefill: Distribution
    decode: Distribution


@dataclass(slots=True)
class Tally:
    """Running totals since start. The ``crowded_`` totals count only steps during which requests waited.

    Attributes:
        refused_draws: requests that ended with `Misplaced`.
        schedule_s: seconds of steps before the target ran, without the wait for local drafters.
        draft_wait_s: seconds for which steps waited for local drafters.
        run_s: seconds from the target's start to the step's end.
        step_rows: rows of steps.
        step_sequences: sequences of steps.
        lengths: tokens that a step added to a sequence that decodes.
        times: seconds of the parts of requests.
        oldest_since: when the oldest waiting request was queued, in seconds on the scheduler's clock; 0.0 without one.
    """

    step_rows: Distribution
    step_sequences: Distribution
    lengths: Distribution
    times: RequestTimes
    steps: int = 0
    rows: int = 0
    tokens: int = 0
    prefilled: int = 0
    crowded_steps: int = 0
    crowded_sequences: int = 0
    crowded_tokens: int = 0
    crowded_seconds: float = 0.0
    expired: int = 0
    refused_draws: int = 0
    guesses: Counts = field(default_factory=Counts)
    schedule_s: float = 0.0
    draft_wait_s: float = 0.0
    run_s: float = 0.0
    oldest_since: float = 0.0

    @classmethod
    def start(cls, telemetry: Telemetry, guesses: Counts) -> Tally:
        """A tally of nothing yet, with distributions of ``telemetry``; ``guesses`` are counted elsewhere."""
        times = RequestTimes(*(telemetry.distribution(SECONDS) for _ in range(3)))
        rows, sequences, lengths = map(telemetry.distribution, (ROWS, ROWS, LENGTHS))
        return cls(rows, sequences, lengths, times, guesses=guesses)

    def crowded(self, sequences: int, tokens: int, seconds: float) -> None:
        """Counts a step during which requests waited."""
        self.crowded_steps += 1
        self.crowded_sequences += sequences
        self.crowded_tokens += tokens
        self.crowded_seconds += seconds
