"""Chooses the sequences that a local drafter is asked for: those for which other drafters guess too little."""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf
from typing import NamedTuple

READING = 32
"""Unread tokens from which on reading takes a drafter longer than guessing."""
# Means of 32 steps, from 6 steps on. A step above 3 times the usual was held up by something else. On trial, a sequence
# is worth asking for where fewer than 1 token is expected, that is where the other guesses run out.
_LEAST_SEEN, _LEARN, _OUTLIER, _TRIAL_TOKENS = 6, 1 / 32, 3.0, 1.0


class StepForecast(NamedTuple):
    """What a step is expected to bring without the drafter.

    Attributes:
        tokens: tokens that the step will decide, over all sequences.
        seconds: expected time of the step.
        brought: expected tokens of the guesses at hand, for each sequence that the drafter may be asked for.
    """

    tokens: float
    seconds: float
    brought: Mapping[int, float]


class SequenceChoice:
    """Compares, in each step, the tokens that the guesses at hand bring with those that the drafter would add.

    The drafter's guesses are expected to add the tokens and the seconds that they added lately. The drafter is asked
    where that raises the step's tokens a second. A drafter that would not pay even without other guesses is on trial:
    it is asked for each sequence whose guesses bring less than one token, and `DrafterPolicy` judges it.

    A drafter reads a prompt before it guesses. It is asked to read once its guesses would have saved, since the
    sequence began, as much time as reading takes; the first prompt is read at once, since nothing is known.
    """

    def __init__(self) -> None:
        self._read_s: float | None = None
        self._extra, self._added = _Mean(), dict[int, _Mean]()
        self._missed: dict[int, float] = {}
        self._brought: Mapping[int, float] = {}

    def choose(self, size: int, forecast: StepForecast, unread: Mapping[int, int]) -> Set[int]:
        """The sequences that the drafter is asked for.

        Args:
            size: size of the step, as in `DrafterPolicy`.
            forecast: what the step brings without the drafter.
            unread: tokens that the drafter has not read, by sequence.
        """
        self._brought = forecast.brought
        extra, adds = self._extra.value, self._added.get(size, _Mean())
        if adds.seen < _LEAST_SEEN or extra * forecast.seconds <= adds.value:
            extra, adds = _TRIAL_TOKENS, _Mean()
        wanted = [number for number, tokens in forecast.brought.items() if tokens < extra]
        if len(wanted) * extra * forecast.seconds <= forecast.tokens * adds.value:
            return frozenset()
        for number in wanted:
            self._missed[number] = self._missed.get(number, 0.0) + extra * forecast.seconds / forecast.tokens
        return {number for number in wanted if unread[number] < READING or self._pays_reading(number, unread[number])}

    def _pays_reading(self, number: int, unread: int) -> bool:
        return self._read_s is None or self._missed[number] >= unread * self._read_s

    def time_reading(self, tokens: int, seconds: float) -> None:
        """Learns how many seconds the drafter took to read ``tokens`` tokens."""
        measured = seconds / tokens
        self._read_s = measured if self._read_s is None else self._read_s + (measured - self._read_s) / 4

    def learn(self, number: int, accepted: int) -> None:
        """Learns how many guesses a step accepted for a sequence that the drafter was asked for."""
        self._missed.pop(number, None)
        self._extra.see(accepted - self._brought.get(number, 0.0))

    def time_step(self, size: int, seconds: float) -> None:
        """Learns how many seconds the drafter added to a step in which it read no long prompt.

        A value far above the usual has another cause: it counts as `_OUTLIER` times the usual.
        """
        usual = self._added.setdefault(size, _Mean())
        most = _OUTLIER * usual.value if usual.seen >= _LEAST_SEEN and usual.value > 0 else inf
        usual.see(min(seconds, most))

    def close(self, number: int) -> None:
        """Forgets a sequence that ended."""
        self._missed.pop(number, None)


class _Mean:
    """A running mean of recent values."""

    def __init__(self) -> None:
        self.value, self.seen = 0.0, 0

    def see(self, value: float) -> None:
        self.seen += 1
        self.value += (value - self.value) * max(_LEARN, 1 / self.seen)
