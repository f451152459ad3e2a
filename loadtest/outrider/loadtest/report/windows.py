"""Requests admitted under a limit by the minute, counted minute by minute."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec
from outrider.loadtest.report.bars import Bar

MINUTE_S = 60
_ROUNDING_S = 0.002
"""Above the rounding of gateways' times."""
_RESET = re.compile(r"(?:(?P<m>\d+)m)?(?:(?P<s>[\d.]+)s)?|(?P<ms>\d+)ms")


class RequestOutcome(StrEnum):
    """The end of a request; a request ``LOST`` with its gateway may have been admitted or not."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    LOST = "lost"


class CountedRequest(msgspec.Struct, frozen=True):
    """One request: its gateway, its fate, its minute since 1970, and the units it used.

    A refused request used 0 ``units``; a lost one counts the units that it could have used.
    """

    gateway: str
    outcome: RequestOutcome
    window: int
    units: int


class Window(msgspec.Struct, frozen=True):
    """One minute: units admitted, units of lost requests, and the number of refused requests."""

    window: int
    admitted: int
    lost: int
    refused: int
    by_gateway: dict[str, int]


def window_of(sent: float, reset: str) -> int:
    """The minute in which a gateway counted a request that was ``sent`` that many seconds after 1970.

    ``reset`` is the rest of that minute when the gateway counted (``x-ratelimit-reset-*``). ``sent`` plus ``reset`` is
    earlier than the minute's end by the request's transit time; the result is right if that is below a minute.
    """
    return math.ceil((sent + seconds(reset) - _ROUNDING_S) / MINUTE_S) - 1


def seconds(reset: str) -> float:
    """``20ms``, ``1.5s`` or ``1m0s`` in seconds; `ValueError` for another form."""
    parts = _RESET.fullmatch(reset)
    if parts is None or not reset:
        raise ValueError(f"{reset!r} is no duration")
    return int(parts["m"] or 0) * 60 + float(parts["s"] or 0) + int(parts["ms"] or 0) / 1e3


def tally(requests: Iterable[CountedRequest]) -> list[Window]:
    """The minutes with requests, in order."""
    by_window: dict[int, list[CountedRequest]] = {}
    for request in requests:
        by_window.setdefault(request.window, []).append(request)
    return [_window(number, by_window[number]) for number in sorted(by_window)]


def _window(number: int, requests: list[CountedRequest]) -> Window:
    units = {
        outcome: sum(request.units for request in requests if request.outcome is outcome) for outcome in RequestOutcome
    }
    by_gateway: dict[str, int] = {}
    for request in requests:
        if request.outcome is RequestOutcome.ADMITTED:
            by_gateway[request.gateway] = by_gateway.get(request.gateway, 0) + request.units
    refused = sum(request.outcome is RequestOutcome.REFUSED for request in requests)
    return Window(
        number, units[RequestOutcome.ADMITTED], units[RequestOutcome.LOST], refused, dict(sorted(by_gateway.items()))
    )


def judge(name: str, windows: list[Window], limit: int, minutes: int, least: float) -> list[Bar]:
    """Bars: at least the share ``least`` of the limit was admitted over ``minutes``, and no minute exceeded the limit.

    A lost request counts as admitted for the share, since its reservation is lost too, and as refused for the excess.
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
