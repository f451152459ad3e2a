"""The tokens that a guess has to bring to pay for itself, passed on to drafters that take prices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from outrider.engine.speculation import Drafter

_LEARN = 1 / 16


class GuessPrices:
    """Recent tokens a second and seconds a row, by kind of step.

    A row, or drafting, pays where it brings more tokens than steps decide in the time that it takes.

    Args:
        drafters: the local drafters; each that is priced gets the prices.
    """

    def __init__(self, drafters: Iterable[Drafter]) -> None:
        self._drafters = [drafter for drafter in drafters if drafter.traits.priced]
        self._tokens: dict[Hashable, float] = {}
        self._row: dict[Hashable, float] = {}

    def learn(self, kind: Hashable, tokens: int, seconds: float, row: float) -> None:
        """Learns from a step, and passes the new prices of its kind to the drafters.

        Args:
            kind: kind of a step that asked such a drafter.
            tokens: tokens that the step decided.
            seconds: time of the step, waiting for drafters included.
            row: seconds that one more guess would have added.
        """
        self._tokens[kind] = second = _moved_toward(self._tokens.get(kind), tokens / seconds)
        self._row[kind] = row = _moved_toward(self._row.get(kind), row)
        for drafter in self._drafters:
            drafter.price(row * second, second)


def _moved_toward(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _LEARN * (value - mean)
