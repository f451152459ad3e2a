"""Counts of admitted requests, minute by minute."""

from __future__ import annotations

import pytest
from outrider.gateway.admission.reservation import duration
from outrider.loadtest.report.windows import CountedRequest, RequestOutcome, judge, seconds, tally, window_of

LET_IN, REFUSED, LOST = RequestOutcome.ADMITTED, RequestOutcome.REFUSED, RequestOutcome.LOST


@pytest.mark.parametrize("given", [0.02, 0.999, 1.5, 59.999, 60.0])
def test_durations_are_read_as_the_gateway_writes_them(given: float) -> None:
    assert seconds(duration(given)) == pytest.approx(given, abs=5e-4)


@pytest.mark.parametrize("text", ["", "soon", "5", "1.5", "ms"])
def test_a_text_that_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("sent", "reset", "window"),
    [
        (600.0, "1m0s", 10),
        (630.0, "30s", 10),
        (659.98, "21ms", 10),
        (659.9, "59.9s", 11),
        (645.0, "5s", 10),
        (645, "20s", 11),
    ],
)
def test_a_request_is_of_the_minute_in_which_it_was_counted_however_long_it_was_under_way(
    sent: float, reset: str, window: int
) -> None:
    assert window_of(sent, reset) == window


def test_minutes_count_admitted_units_by_gateway() -> None:
    requests = [
        CountedRequest("b", LET_IN, 8, 30),
        CountedRequest("a", LET_IN, 7, 50),
        CountedRequest("a", LET_IN, 7, 40),
        CountedRequest("b", REFUSED, 7, 0),
        CountedRequest("b", LOST, 7, 5),
        CountedRequest("b", LET_IN, 7, 3),
    ]
    first, second = tally(requests)
    assert (first.window, first.admitted, first.lost, first.refused) == (7, 93, 5, 1)
    assert first.by_gateway == {"a": 90, "b": 3}
    assert (second.window, second.admitted) == (8, 30)


@pytest.mark.parametrize(
    ("units", "met"),
    [
        ([100, 99], [True, True, True]),
        ([101, 98], [True, True, False]),
        ([100, 97], [False, True, True]),
        ([100], [False, False, True]),
        ([70, 70, 59], [True, False, True]),
        ([], [False, False, True]),
    ],
    ids=["held", "over", "under", "a minute short", "a minute long", "nothing"],
)
def test_a_limit_is_held_where_all_of_it_and_never_more_is_let_in(units: list[int], met: list[bool]) -> None:
    requests = [CountedRequest("a", LET_IN, minute, each) for minute, each in enumerate(units)]
    assert [bar.met for bar in judge("requests", tally(requests), 100, 2, 0.99)] == met


def test_lost_requests_miss_no_bar() -> None:
    requests = [CountedRequest("a", LET_IN, 0, 95), CountedRequest("a", LOST, 0, 6)]
    assert [bar.met for bar in judge("requests", tally(requests), 100, 1, 0.99)] == [True, True, True]
