"""What was let in of a limit by the minute, minute by minute."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec
from outrider.loadtest.report.bars import Bar

MINUTE_S = 60
_ROUNDING_S = 0.002
"""More than gateways round what they tell by."""
_RESET = re.compile(r"(?:(?P<m>\d+)m)?(?:(?P<s>[\d.]+)s)?|(?P<ms>\d+)ms")


class Fate(StrEnum):
    """What became of a request; of one that was ``LOST`` with its gateway nobody knows whether it was let in."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    LOST = "lost"


class Asked(msgspec.Struct, frozen=True):
    """One request: what became of it, through which gateway, in which minute since 1970, and what it used.

    ``units`` of one that was refused are 0, of one that was lost what it could have used.
    """

    gateway: str
    fate: Fate
    window: int
    units: int


class Window(msgspec.Struct, frozen=True):
    """One minute: units that were let in, those that may have been, and how many requests were refused."""

    window: int
    admitted: int
    lost: int
    refused: int
    by_gateway: dict[str, int]


def window_of(sent: float, reset: str) -> int:
    """The minute in which a gateway counted a request that was ``sent`` so many seconds after 1970.

    The gateway says how long the minute still lasted then (``x-ratelimit-reset-*``). So the minute ends later than both
    together by what the request was under way, which tells it as long as that is less than a minute.
    """
    return math.ceil((sent + seconds(reset) - _ROUNDING_S) / MINUTE_S) - 1


def seconds(reset: str) -> float:
    """``20ms``, ``1.5s`` or ``1m0s`` in seconds; `ValueError` for anything else."""
    found = _RESET.fullmatch(reset)
    if found is None or not reset:
        raise ValueError(f"{reset!r} is no duration")
    return int(found["m"] or 0) * 60 + float(found["s"] or 0) + int(found["ms"] or 0) / 1e3


def tally(asked: Iterable[Asked]) -> list[Window]:
    """The minutes in which anything was asked, in order."""
    found: dict[int, list[Asked]] = {}
    for each in asked:
        found.setdefault(each.window, []).append(each)
    return [_window(number, found[number]) for number in sorted(found)]


def _window(number: int, asked: list[Asked]) -> Window:
    units = {fate: sum(each.units for each in asked if each.fate is fate) for fate in Fate}
    by_gateway: dict[str, int] = {}
    for each in asked:
        if each.fate is Fate.ADMITTED:
            by_gateway[each.gateway] = by_gateway.get(each.gateway, 0) + each.units
    refused = sum(each.fate is Fate.REFUSED for each in asked)
    return Window(number, units[Fate.ADMITTED], units[Fate.LOST], refused, dict(sorted(by_gateway.items())))


def judge(name: str, windows: list[Window], limit: int, minutes: int, least: float) -> list[Bar]:
    """Whether ``least`` of the limit was let in over so many ``minutes``, and in none of them more than it.

    A request that was lost is taken for let in in the first, since what it had reserved is lost with it, and for
    refused in the second.
    """
    share = sum(window.admitted + window.lost for window in windows) / (limit * minutes)
    spare = min((limit - window.admitted for window in windows), default=limit)
    return [
        Bar(f"{name}: share of the limit that was let in, with what was lost", share, least),
        Bar(
            f"{name}: minutes in which anything was let in, of {minutes}",
            minutes - abs(minutes - len(windows)),
            minutes,
        ),
        Bar(f"{name}: of {limit}, left in the fullest minute", spare, 0),
    ]
