"""What the engine reports of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.trace import SpanContext
from outrider.mesh.telemetry import Distribution
from outrider.mesh.telemetry.metrics import SECONDS
from outrider.models.speculation import Opening
from outrider.verifier.requests.sequence import Request
from outrider.verifier.speculation.counts import Counts
from outrider.wire.frames import Frame
from outrider.wire.residency import Residency

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Bounds of rows and of sequences in a step."""
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Bounds of tokens that a step adds to a sequence."""


@dataclass(frozen=True, slots=True)
class OpenedSequence:
    """A new sequence for remote drafters; ``drafters`` names those that may guess, None for all.

    Only proposers of the ``residency`` may get it. ``traceparent`` names the span in which it runs, or is empty.
    """

    number: int
    opening: Opening
    drafters: frozenset[str] | None
    residency: Residency = None
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class CommittedTokens:
    """Tokens that the target decided behind ``length`` others."""

    number: int
    length: int
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Place of a new request: sequences ahead of it, and expected seconds until its first token."""

    ahead: int
    first_s: float


@dataclass(slots=True)
class Outcome:
    """What a step did: frames for readers, the rest for remote drafters. ``paused`` names the paused drafters.

    ``spans`` has the step's span in the trace of each request, by request id, for requests whose trace is kept.
    """

    frames: list[tuple[Request, Frame]] = field(default_factory=list)
    opened: list[OpenedSequence] = field(default_factory=list)
    committed: list[CommittedTokens] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    paused: frozenset[str] = frozenset()
    spans: dict[str, SpanContext] | None = None


def _seconds() -> Distribution:
    return Distribution(SECONDS)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Seconds of requests: in the queue, until the first token, and from there to the end."""

    queue: Distribution = field(default_factory=_seconds)
    prefill: Distribution = field(default_factory=_seconds)
    decode: Distribution = field(default_factory=_seconds)


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
    step_rows: Distribution = field(default_factory=lambda: Distribution(ROWS))
    step_sequences: Distribution = field(default_factory=lambda: Distribution(ROWS))
    lengths: Distribution = field(default_factory=lambda: Distribution(LENGTHS))
    times: RequestTimes = field(default_factory=RequestTimes)
    oldest_since: float = 0.0

    def crowded(self, sequences: int, tokens: int, seconds: float) -> None:
        """Counts a step during which requests waited."""
        self.crowded_steps += 1
        self.crowded_sequences += sequences
        self.crowded_tokens += tokens
        self.crowded_seconds += seconds
