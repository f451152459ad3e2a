"""Which rates are tried: the given ones, or rising ones until the mesh no longer keeps up, and some around that."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from outrider.measure.ramp.level import Level

MOST = 12
"""Most doublings."""
_BETWEEN = 3
"""Rates tried between the last that is kept up with and the first that is not."""

RunLevel = Callable[[float, int], Awaitable[Level]]


async def given(rates: Sequence[float], repeats: int, run: RunLevel) -> list[Level]:
    """A level of each rate and repeat; every other repeat goes from the highest rate to the lowest."""
    levels = []
    for repeat in range(repeats):
        for rate in rates if repeat % 2 == 0 else reversed(rates):
            levels.append(await run(rate, repeat))
    return levels


async def rising(first: float, repeats: int, run: RunLevel) -> list[Level]:
    """Doubles the rate from ``first`` until the mesh does not keep up, then halves the gap on a logarithmic scale."""
    levels = [await run(first, 0)]
    while levels[-1].keeps_up and len(levels) < MOST:
        levels.append(await run(2 * levels[-1].rate, 0))
    kept, missed = _border(levels)
    for _ in range(_BETWEEN):
        if not 0 < kept < missed < math.inf:
            break
        levels.append(await run(math.sqrt(kept * missed), 0))
        kept, missed = _border(levels)
    rates = sorted(level.rate for level in levels)
    for repeat in range(1, repeats):
        for rate in rates if repeat % 2 == 0 else reversed(rates):
            levels.append(await run(rate, repeat))
    return levels


def saturation(levels: Sequence[Level]) -> tuple[float, float]:
    """The highest rate that the mesh keeps up with in most repeats, and the lowest above it at which it does not.

    0 and infinity where there is no such rate.
    """
    return _border(levels)


def _border(levels: Sequence[Level]) -> tuple[float, float]:
    votes: dict[float, list[bool]] = {}
    for level in levels:
        votes.setdefault(level.rate, []).append(level.keeps_up)
    kept = {rate: 2 * sum(vote) > len(vote) for rate, vote in votes.items()}
    highest = max((rate for rate, keeps in kept.items() if keeps), default=0.0)
    return highest, min((rate for rate, keeps in kept.items() if not keeps and rate > highest), default=math.inf)
