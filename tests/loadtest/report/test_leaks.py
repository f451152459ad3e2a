"""Counts and memory that are judged as leaks."""

from __future__ import annotations

from outrider.loadtest.report.leaks import growth, highest, judge

BEFORE = {"gateway tasks": 40.0, "verifier free pages": 100.0}
MIB = 1 << 20


def test_more_of_anything_is_left_and_so_are_fewer_free_pages() -> None:
    assert growth(BEFORE, BEFORE) == {}
    assert growth(BEFORE, {"gateway tasks": 39.0, "verifier free pages": 101.0}) == {}
    assert growth(BEFORE, {"gateway tasks": 41.0, "verifier free pages": 97.0}) == {
        "gateway tasks": 1.0,
        "verifier free pages": 3.0,
    }


def test_the_most_is_the_most_tasks_and_the_fewest_pages() -> None:
    other = {"gateway tasks": 50.0, "verifier free pages": 90.0}
    assert highest(BEFORE, other) == highest({}, other) == other


def test_memory_may_level_out_and_not_go_on_growing() -> None:
    samples = [{"gateway 1": size * MIB} for size in (100, 200, 201, 202)]
    assert all(bar.met for bar in judge(BEFORE, BEFORE, samples, 0.05))
    samples.append({"gateway 1": 300 * MIB})
    assert [bar.what for bar in judge(BEFORE, BEFORE, samples, 0.05) if not bar.met] == [
        "gateway 1: MiB to spare of what its memory may grow by"
    ]
