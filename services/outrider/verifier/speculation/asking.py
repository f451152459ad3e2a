"""Which sequences a drafter is asked for that steps wait for: those whose other guesses bring less."""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf
from typing import NamedTuple

READING = 32
"""From so many tokens on, taking in what was decided takes a drafter longer than guessing does."""
_GLANCE, _LEARN, _MOST, _FEW = 6, 1 / 32, 3.0, 1.0


class Ready(NamedTuple):
    """What a step has without the drafter.

    Attributes:
        tokens: that the step will decide, of all sequences.
        seconds: of the step.
        brought: tokens that the guesses at hand will bring, by sequence that the drafter may be asked for.
    """

    tokens: float
    seconds: float
    brought: Mapping[int, float]


class Asking:
    """Compares, step by step, what the guesses at hand will bring with what the drafter's would bring.

    The drafter's guesses bring as many tokens more as they brought lately, and add the seconds that they added lately.
    The drafter is asked where the step then brings more tokens a second. A drafter that would not even pay beside no
    other guesses is on trial: it is asked for each sequence that has less than one token to come; `Worth` judges it.

    A drafter has to read a prompt before it guesses. It does so when its guesses would have saved as much time, since
    the sequence began, as reading takes.

    Args:
        read_s: seconds for a token that is read, until it is known how long that takes.
    """

    def __init__(self, read_s: float) -> None:
        self._read_s = read_s
        self._more, self._added = _Mean(), dict[int, _Mean]()
        self._missed: dict[int, float] = {}
        self._ready: Mapping[int, float] = {}

    def choose(self, size: int, ready: Ready, unread: Mapping[int, int]) -> Set[int]:
        """The sequences that the drafter is asked for.

        Args:
            size: of the step, as in `Worth`.
            ready: what the step has without the drafter.
            unread: tokens that the drafter would have to read, by sequence.
        """
        self._ready = ready.brought
        more, adds = self._more.value, self._added.get(size, _Mean())
        if adds.seen < _GLANCE or more * ready.seconds <= adds.value:
            more, adds = _FEW, _Mean()
        wanted = [number for number, tokens in ready.brought.items() if tokens < more]
        if len(wanted) * more * ready.seconds <= ready.tokens * adds.value:
            return frozenset()
        for number in wanted:
            self._missed[number] = self._missed.get(number, 0.0) + more * ready.seconds / ready.tokens
        return {number for number in wanted if unread[number] < READING or self._reads(number, unread[number])}

    def _reads(self, number: int, unread: int) -> bool:
        return self._missed[number] >= unread * self._read_s

    def read(self, tokens: int, seconds: float) -> None:
        """Takes in how long the drafter took to read so many tokens."""
        self._read_s += (seconds / tokens - self._read_s) / 4

    def came(self, number: int, accepted: int) -> None:
        """Takes in how many guesses came true in a step of a sequence that the drafter was asked for."""
        self._missed.pop(number, None)
        self._more.see(accepted - self._ready.get(number, 0.0))

    def took(self, size: int, seconds: float) -> None:
        """Takes in how much longer a step took for the drafter, without reading.

        Something else held up what is far above the usual.
        """
        usual = self._added.setdefault(size, _Mean())
        most = _MOST * usual.value if usual.seen >= _GLANCE and usual.value > 0 else inf
        usual.see(min(seconds, most))

    def close(self, number: int) -> None:
        """The sequence ended."""
        self._missed.pop(number, None)


class _Mean:
    """The mean of what was seen lately."""

    def __init__(self) -> None:
        self.value, self.seen = 0.0, 0

    def see(self, value: float) -> None:
        self.seen += 1
        self.value += (value - self.value) * max(_LEARN, 1 / self.seen)
