"""What the engine tells of its steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from outrider.models.speculation import Opening
from outrider.verifier.requests.sequence import Request
from outrider.verifier.speculation.counts import Counts
from outrider.wire.frames import Frame


@dataclass(frozen=True, slots=True)
class Opened:
    """A sequence that drafters may start to guess at; ``drafters`` are those that may, None for all."""

    number: int
    opening: Opening
    drafters: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that the target decided behind ``length`` others."""

    number: int
    length: int
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Queued:
    """Where a new request stands: how many go before it, and in how many seconds its first token is expected."""

    ahead: int
    first_s: float


@dataclass(slots=True)
class Outcome:
    """What a step did, for others to hear: frames for readers, the rest for drafters.

    ``quiet`` names the drafters that are not to guess at present.
    """

    frames: list[tuple[Request, Frame]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    quiet: frozenset[str] = frozenset()


@dataclass(slots=True)
class Tally:
    """Running totals since start; ``crowded`` are steps while requests waited, and the sequences that ran in them, the
    tokens that came of them and the seconds that they took."""

    steps: int = 0
    rows: int = 0
    tokens: int = 0
    prefilled: int = 0
    crowded_steps: int = 0
    crowded_sequences: int = 0
    crowded_tokens: int = 0
    crowded_seconds: float = 0.0
    expired: int = 0
    guesses: Counts = field(default_factory=Counts)

    def crowded(self, sequences: int, tokens: int, seconds: float) -> None:
        """Notes a step while requests waited."""
        self.crowded_steps += 1
        self.crowded_sequences += sequences
        self.crowded_tokens += tokens
        self.crowded_seconds += seconds

    @property
    def guessed(self) -> Counter[str]:
        """Guesses verified, by drafter."""
        return _by_drafter(self.guesses.bought)

    @property
    def accepted(self) -> Counter[str]:
        """Guesses that came true, by drafter."""
        return _by_drafter(self.guesses.accepted)


def _by_drafter(counts: Counter[tuple[str, int]]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (drafter, _), count in counts.items():
        sums[drafter] += count
    return sums
