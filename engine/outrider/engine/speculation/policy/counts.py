"""Counters of guesses since start: drafted, bought, accepted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Running totals since start.

    Attributes:
        drafted: guesses that a step could have bought, by drafter and depth; depth 1 is the token behind the next.
        bought: guesses verified, by drafter and depth.
        accepted: guesses accepted, by drafter and depth.
        trees: number of times that guesses of a sequence were verified.
        unusable: refused trees, by drafter: ids unknown to the target, or not drawn as the rule of acceptance needs.
        exposed: seconds for which steps waited for each local drafter.
        changes: changes of versions of local drafters, by drafter and kind: changed, rolled_back.
        predicted: expected seconds of steps that computed no prompts.
        real: measured seconds of the same steps.
    """

    drafted: Counter[tuple[str, int]] = field(default_factory=Counter)
    bought: Counter[tuple[str, int]] = field(default_factory=Counter)
    accepted: Counter[tuple[str, int]] = field(default_factory=Counter)
    trees: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    exposed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    predicted: float = 0.0
    real: float = 0.0
