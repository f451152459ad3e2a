"""What a draft model's guesses have to bring, and what its runs take."""

from __future__ import annotations

from typing import NamedTuple


class DraftPrice(NamedTuple):
    """What guesses have to bring so that they pay, in tokens; zeros where drafting costs nothing.

    Attributes:
        guess: of a guess that is verified: a node less likely than this is not grown.
        second: of a second spent on drafting: a run is made where the nodes that it grows are together likely enough.
    """

    guess: float = 0.0
    second: float = 0.0


FREE = DraftPrice()


class RunTime:
    """Seconds that a run of the model has taken lately.

    Attributes:
        seconds: 0 before the first run.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def learn(self, took: float) -> None:
        """Takes in a run of ``took`` seconds; one that something held up counts for little."""
        known = self.seconds
        self.seconds = known + (min(took, 2 * known) - known) / 16 if known else took
