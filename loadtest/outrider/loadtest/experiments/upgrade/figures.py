"""What a restart of all services did to streams."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from outrider.loadtest.attack.reader import StreamRecord

MOST_GONE_S = 5.0
MOST_GAP_S = 1.0
"""Most seconds between SIGTERM and the end of a process, and in the median stream between two tokens."""


class Restart(msgspec.Struct, frozen=True):
    """What a restart of all services did.

    Attributes:
        gone_s: for each process that was replaced, the seconds from SIGTERM to its end.
        gaps_s: for each stream that ran meanwhile, its longest time between two tokens.
        undisturbed_s: the same for the streams before, without a restart.
        whole: whether every service was replaced.
    """

    name: str
    streams: int
    lost: int
    altered: int
    gone_s: dict[str, float]
    gaps_s: list[float]
    undisturbed_s: list[float]
    whole: bool
    why: list[str]

    @property
    def passed(self) -> bool:
        """Whether no stream was lost or altered, and processes and gaps were as short as promised."""
        kept = self.whole and self.streams > 0 and not self.lost and not self.altered
        return kept and max(self.gone_s.values()) <= MOST_GONE_S and statistics.median(self.gaps_s) <= MOST_GAP_S

    def __str__(self) -> str:
        """A few lines for the terminal."""
        gone = ", ".join(f"{name} {seconds:g}" for name, seconds in self.gone_s.items())
        lines = [
            f"{self.name}: {self.streams} streams, {self.lost} lost, {self.altered} altered",
            f"  longest gap of a stream: {_spread(self.gaps_s)}; undisturbed: {_spread(self.undisturbed_s)}",
            f"  seconds from SIGTERM to the end: {gone}",
            *([] if self.whole else ["  the restart ended early"]),
            *(f"  {why}" for why in self.why),
        ]
        return "\n".join(lines)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s at the median, {max(seconds):.2f} s at most" if seconds else "none"


def longest_gap(record: StreamRecord) -> float:
    """The longest time between two arrivals of tokens, in seconds; 0 with fewer than two."""
    times = [arrival for arrival, _ in record.arrivals]
    return max((after - before for before, after in pairwise(times)), default=0.0)
