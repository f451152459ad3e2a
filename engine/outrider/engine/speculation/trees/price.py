"""What guesses cost in a step, and what a round that grows trees has to bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# The usual seconds of a round are a mean of 16; they fall while none pays, so that one is tried again.
_LEARN, _FADE = 1 / 16, 1 - 1 / 128


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What guesses cost in a step.

    Attributes:
        sequences: number of sequences that decode in it.
        seconds: of the step by its number of guesses.
    """

    sequences: int
    seconds: Callable[[int], float]

    @property
    def token_s(self) -> float:
        """Seconds that a right guess saves."""
        return self.seconds(0) / self.sequences

    def least_value(self, guesses: int, wait_s: float) -> float:
        """Probability above which the last of ``guesses`` saves more than its row and ``wait_s`` of drafting take."""
        return (self.seconds(guesses) - self.seconds(guesses - 1) + wait_s) / self.token_s


class RoundPrice:
    """Learns how long a round of growth takes, and says which nodes pay for one.

    Attributes:
        costs: what guesses cost in the step; None if nothing is known.
    """

    def __init__(self) -> None:
        self.costs: StepCosts | None = None
        self._round_s = 0.0

    def least_value(self, depth: int) -> float:
        """Probability of a node from which on children at ``depth`` may pay for their rows and for a round.

        Children are no likelier than the node, and a guess at ``depth`` is bought beside those above it.
        """
        return 0.0 if self.costs is None else self.costs.least_value(depth, self._round_s)

    def learn(self, seconds: float) -> None:
        """Learns a session's share of a round; one that takes longer than a plain step was held up by others."""
        if self.costs is not None:
            self._round_s += (min(seconds, self.costs.token_s) - self._round_s) * (_LEARN if self._round_s else 1.0)

    def skip(self) -> None:
        """Notes that no node paid for a round."""
        self._round_s *= _FADE
