"""The keywords of numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from outrider.gateway.schemas.document import Place
from outrider.gateway.schemas.values import LARGEST, exact, plain

if TYPE_CHECKING:
    from outrider.gateway.schemas.rewriting import Rewriter

_SIDES = (("minimum", "exclusiveMinimum", max), ("maximum", "exclusiveMaximum", min))
_MOST_REMAINDERS = 20_000
"""Largest ``multipleOf`` without its point: the compiler has a state for each remainder."""
_MOST_DIGITS = 9


def base(rewriter: Rewriter, place: Place, says: dict[str, Any]) -> dict[str, Any]:
    """The keywords of numbers that the compiler takes."""
    kept: dict[str, Any] = {}
    for inclusive, exclusive, _ in _SIDES:
        given = {inclusive: says.get(inclusive), exclusive: says.get(exclusive)}
        if given[exclusive] is True:  # draft 4: the bound beside it is exclusive
            given = {exclusive: given[inclusive]}
        for keyword, bound in given.items():
            if bound is not None and exact(bound):
                kept[keyword] = plain(bound)
            elif bound is not None:
                rewriter.ignore(place, keyword)
    if not tellable(kept):
        for inclusive, exclusive, narrower in _SIDES:
            if exclusive in kept:
                rewriter.ignore(place, exclusive)
                kept[inclusive] = narrower(kept.get(inclusive, kept[exclusive]), kept.pop(exclusive))
    if "multipleOf" in says:
        if _scaled(says["multipleOf"]) <= _MOST_REMAINDERS:
            kept["multipleOf"] = plain(says["multipleOf"])
        else:
            rewriter.ignore(place, "multipleOf")
    return kept


def tellable(bounds: dict[str, Any]) -> bool:
    """Whether the compiler keeps to exclusive ``bounds``.

    It takes 0 for a number between 0 and 0.5, and computes the number beside a whole one.
    """
    least, most = ([bounds[each] for each in side[:2] if each in bounds] for side in _SIDES)
    whole = [bounds[side[1]] for side in _SIDES if isinstance(bounds.get(side[1]), int)]
    close = bool(whole and least and most) and 0 < min(most) - max(least) < 1
    return not close and all(abs(bound) < LARGEST for bound in whole)


def values_between(values: list[Any]) -> list[dict[str, Any]]:
    """The bounds of all numbers but ``values``."""
    ends = [None, *sorted(set(values)), None]
    bounds = ({"exclusiveMinimum": low, "exclusiveMaximum": high} for low, high in pairwise(ends))
    return [{name: end for name, end in each.items() if end is not None} for each in bounds]


def _scaled(step: float) -> float:
    """``step`` times powers of ten until it is whole, as the compiler computes it; endless after many digits."""
    for _ in range(_MOST_DIGITS):
        if step == int(step):
            return step
        step *= 10
    return float("inf")
