from __future__ import annotations

import json
import math

import pytest
from outrider.measure.load.arrivals import Sample
from outrider.measure.load.client import Reply
from outrider.measure.load.summary import median, percentile, summarize
from outrider.measure.report import plot_bench
from outrider.measure.report.bench_report import Pass, Report, headline, machine, table
from rich.console import Console


def sample(due: float, arrivals: list[float], tokens: int, steps: int) -> Sample:
    return Sample(
        due,
        Reply(arrivals, 256, 0, tokens, accepted_tokens=tokens // 2, rejected_tokens=tokens // 2, steps=steps),
    )


@pytest.fixture
def report() -> Report:
    def each(load: str, mode: str, seconds: float) -> Pass:
        return Pass(load, mode, 1, summarize([sample(0.0, [0.1, seconds], 100, 40)]))

    passes = [
        each(load, mode, seconds)
        for load, seconds in (("concurrency 1", 2.0), ("concurrency 8", 3.0))
        for mode, seconds in (("on", seconds), ("off", 2 * seconds))
    ]
    settings = {"model": "pocket", "temperature": 0.0, "repeats": 1, "max_tokens": 100, "requests": {}}
    return Report(machine=machine(), settings=settings, passes=passes, medians=passes)


def test_a_summary_counts_from_when_a_request_was_due():
    summary = summarize([sample(10.0, [10.5, 11.0, 12.0], 31, 10), sample(10.0, [11.0, 12.0], 11, 4)])
    assert summary.wall_s == 2.0
    assert summary.tokens_per_s == 21.0
    assert (summary.ttft_ms, summary.ttft_p99_ms) == (500.0, 1000.0)
    assert summary.itl_ms == pytest.approx(50.0)
    assert summary.pause_p99_ms == 1000.0
    assert summary.tokens_a_step == 3.0


def test_a_pass_in_which_everything_failed_has_no_figures():
    summary = summarize([Sample(0.0, None, "refused")])
    assert summary.failed == 1
    assert math.isnan(summary.tokens_per_s)
    assert math.isnan(summary.ttft_ms)


def test_percentiles_are_values_that_occurred():
    assert [percentile([3, 1, 2, 4], share) for share in (0.0, 0.5, 0.75, 0.99)] == [1, 2, 3, 4]


def test_a_median_of_repeats_adds_failures_up():
    passes = [summarize([sample(0.0, [0.1, end], 10, 5), Sample(0.0, None, "no")]) for end in (1.0, 2.0, 4.0)]
    assert median(passes).tokens_per_s == 5.0
    assert median(passes).failed == 3


def test_the_ratio_is_on_against_off_for_each_load(report):
    assert report.ratios == {"concurrency 1": 2.0, "concurrency 8": 2.0}


def test_the_table_has_a_line_for_each_load_and_mode(report):
    console = Console(width=80)
    with console.capture() as shown:
        console.print(headline(report))
        console.print(table(report))
    lines = shown.get().splitlines()
    assert sum(line.startswith("concurrency") for line in lines) == 4
    assert sum("2.00" in line for line in lines) == 2


def test_the_report_is_saved_as_json_and_as_a_picture(report, tmp_path):
    report.save(tmp_path / "bench.json")
    plot_bench.save(report, tmp_path / "bench.png")
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert saved["ratios"] == report.ratios
    assert saved["machine"]["cpu"]
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
