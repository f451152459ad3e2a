"""Prices of a draft model's guesses, and the time of its runs."""

from __future__ import annotations

from typing import NamedTuple


class DraftPrice(NamedTuple):
    """Least expected tokens for which guesses pay; zeros if drafting costs nothing.

    Attributes:
        guess: tokens for verifying a guess: a node less likely than this is not grown.
        second: tokens for a second of drafting: the sum of the grown nodes' probabilities has to pay for a run.
    """

    guess: float = 0.0
    second: float = 0.0


FREE = DraftPrice()


class RunTime:
    """Average seconds of recent runs of the model.

    Attributes:
        seconds: 0 before the first run.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def learn(self, seconds: float) -> None:
        """Adds a run to the average, as at most twice the average: a delayed run counts for little."""
        average = self.seconds
        self.seconds = average + (min(seconds, 2 * average) - average) / 16 if average else seconds
