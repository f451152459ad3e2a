"""What guesses have to bring so that they pay: told to those drafters that can do with it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from outrider.models.speculation import Drafter, PricedDrafter

_LEARN = 1 / 16


class GoingRate:
    """Tokens a second and seconds a row of late, by the kind of step.

    A row pays where it brings more tokens than steps decide in the time that it takes, and so does drafting.

    Args:
        drafters: of which those are told that take prices.
    """

    def __init__(self, drafters: Iterable[Drafter]) -> None:
        self._drafters = [drafter for drafter in drafters if isinstance(drafter, PricedDrafter)]
        self._tokens: dict[Hashable, float] = {}
        self._row: dict[Hashable, float] = {}

    def learn(self, kind: Hashable, tokens: int, seconds: float, row: float) -> None:
        """Takes in a step, and tells the drafters what those of its kind cost by now.

        Args:
            kind: of step, in which such a drafter was asked.
            tokens: that it decided.
            seconds: that it took, with what it waited for drafters.
            row: seconds that one more guess would have added to it.
        """
        self._tokens[kind] = second = _nearer(self._tokens.get(kind), tokens / seconds)
        self._row[kind] = row = _nearer(self._row.get(kind), row)
        for drafter in self._drafters:
            drafter.price(row * second, second)


def _nearer(known: float | None, seen: float) -> float:
    return seen if known is None else known + _LEARN * (seen - known)
