"""What is told of streams that were disturbed."""

from __future__ import annotations

from outrider.loadtest.attack.reader import StreamRecord
from outrider.loadtest.outages.load import longest_gap, summary


def test_the_longest_gap_counts_the_wait_for_the_first_token_too() -> None:
    assert longest_gap(StreamRecord(0, 10.0, arrivals=[(12.0, 1), (12.5, 1)])) == 2.0
    assert longest_gap(StreamRecord(0, 10.0, arrivals=[(11.0, 1), (14.0, 1)])) == 3.0
    assert longest_gap(StreamRecord(0, 10.0)) == 0.0


def test_the_summary_counts_what_became_of_streams() -> None:
    records = [
        StreamRecord(0, 1.0, outcome="whole", arrivals=[(1.5, 1)]),
        StreamRecord(1, 1.0, outcome="altered", returns=2),
        StreamRecord(2, 1.0, outcome="lost"),
    ]
    assert summary(records) == "3 streams: 1 altered, 1 lost, 0 hung; 1 connected again; longest gap 0.5 s"
