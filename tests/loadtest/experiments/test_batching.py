"""The comparison of continuous with static batching: its requests, and figures from the counters."""

from __future__ import annotations

import pytest
from outrider.loadtest.experiments.batching import (
    COUNTERS,
    Mix,
    Pass,
    main,
    one_pass,
    pass_from_counters,
    report_text,
    summarize,
)

MIX = Mix(slots=32, requests=640, short=8, long=512, among=32, prompt=4)


def test_lengths_are_as_stated_and_the_long_ones_stand_anywhere() -> None:
    lengths = MIX.lengths(1)
    assert sorted(lengths) == [8] * 620 + [512] * 20
    assert lengths == MIX.lengths(1) != MIX.lengths(2)
    assert {index % 32 for index, length in enumerate(lengths) if length == 512} != {0}


def test_a_pass_has_the_verifier_s_counts_while_requests_waited() -> None:
    counters = {"crowded_tokens": 800, "crowded_seconds": 4, "crowded_steps": 20, "crowded_sequences": 320}
    assert pass_from_counters("static", 32, {**counters, "preemptions": 2}) == Pass("static", 200.0, 0.5, 800, 4.0, 2)


def test_a_pass_without_waiting_requests_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no requests had to wait"):
        pass_from_counters("static", 32, dict.fromkeys(COUNTERS, 0.0))


def test_a_report_has_the_medians_and_their_ratio() -> None:
    speeds = [
        ("continuous", 900),
        ("static", 200),
        ("static", 100),
        ("continuous", 800),
        ("continuous", 100),
        ("static", 500),
    ]
    passes = [Pass(mode, speed, speed / 1000, 1, 1.0, 0) for mode, speed in speeds]
    report = summarize(MIX, "strict", passes)
    assert (report.tokens_per_s, report.ratio) == ({"continuous": 800, "static": 200}, 4.0)
    assert "4.00 times as many" in report_text(report)
    assert "one in 32 of 512; strict; median of 3" in report_text(report)


def test_a_number_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--slots", "0"])
    assert "--slots must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.slow
def test_every_slot_is_used_while_requests_wait() -> None:
    mix = Mix(slots=2, requests=24, short=8, long=64, among=4, prompt=4)
    done = one_pass(mix, "continuous", 0, "strict")
    assert 0 < done.tokens <= sum(mix.lengths(0))
    assert done.batch_use > 0.9
