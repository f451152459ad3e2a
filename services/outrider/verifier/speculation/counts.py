"""What came of guesses, counted since start."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Running totals since start.

    Attributes:
        drafted: guesses that a step could have bought, by drafter and depth; 1 is the token behind the next.
        bought: guesses verified.
        accepted: of those, how many came true.
        unusable: trees of ids that the target does not have, or not drawn as the rule needs it, by drafter.
        exposed: seconds for which steps waited for a drafter of the verifier's own.
        predicted: seconds that steps of decoding alone were expected to take.
        real: seconds that they took.
    """

    drafted: Counter[tuple[str, int]] = field(default_factory=Counter)
    bought: Counter[tuple[str, int]] = field(default_factory=Counter)
    accepted: Counter[tuple[str, int]] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    exposed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    predicted: float = 0.0
    real: float = 0.0
