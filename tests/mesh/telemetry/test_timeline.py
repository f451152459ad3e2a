"""The file of a time line: its events, its size, and its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from outrider.mesh.telemetry import timeline as current
from outrider.mesh.telemetry.timeline import (
    MOST_BYTES,
    DraftRound,
    Message,
    SessionLength,
    Timeline,
    TreeSize,
    read_events,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timeline.jsonl"


def opened(path: Path, name: str) -> Timeline:
    return Timeline(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), name)


def test_events_of_several_writers_are_read_as_they_were_noted(path: Path) -> None:
    one, two = opened(path, "one"), opened(path, "two")
    one.message("commits", False, [(1, 7), (2, 9)])
    two.note(DraftRound(0.5, "two", 0.25, [TreeSize(1, 7, 3, 2)]))
    one.message("trees", True, [])
    commits, drafted = read_events([path])
    assert isinstance(commits, Message)
    assert (commits.instance, commits.what, commits.heard, commits.told) == (
        "one",
        "commits",
        False,
        [SessionLength(1, 7), SessionLength(2, 9)],
    )
    assert drafted == DraftRound(0.5, "two", 0.25, [TreeSize(1, 7, 3, 2)])


def test_a_process_stops_to_write_where_the_file_gets_too_large(path: Path) -> None:
    events = opened(path, "one")
    large = DraftRound(0.5, "one", 0.25, [TreeSize(1, number, 3, 2) for number in range(100_000)])
    for _ in range(40):
        events.note(large)
    assert MOST_BYTES / 2 < path.stat().st_size <= MOST_BYTES
    assert set(map(type, read_events([path]))) == {DraftRound}


def test_nothing_is_noted_where_nobody_asked_for_it() -> None:
    assert current() is None


def test_a_tree_is_as_deep_as_its_longest_branch() -> None:
    assert TreeSize.of(4, 9, [-1, 0, 0, 1, -1]) == TreeSize(4, 9, 5, 3)
    assert TreeSize.of(4, 9, []) == TreeSize(4, 9, 0, 0)


def test_a_file_that_cannot_be_written_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "timeline.jsonl"
    command = [sys.executable, "-m", "outrider.proposer", f"--timeline={path}"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 2
    assert completed.stderr == f"outrider proposer: timeline = {path} cannot be written: No such file or directory\n"


def test_a_disk_that_is_full_ends_the_time_line_and_not_the_process() -> None:
    full = Timeline(os.open("/dev/full", os.O_WRONLY), "one")
    for number in range(3):
        full.note(DraftRound(float(number), "one", 0.25, []))
