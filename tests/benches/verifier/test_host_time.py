"""The benchmark of the engine's own time, with the pocket model."""

from __future__ import annotations

import sys

import pytest
from outrider.benches.verifier import host_time


def test_all_streams_decode_in_every_measured_step_and_each_part_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["host_time", "--streams", "1", "3", "--turns", "2", "--turn", "4"])
    assert host_time.main() == 0
    said = capsys.readouterr().out.splitlines()  # earlier tests may have log lines printed in front
    lines = [line.split(";")[0].split() for line in said if line.startswith(("plain", "ngram"))]
    assert [line[:2] for line in lines] == [[mode, streams] for mode in ("plain", "ngram") for streams in "13"]
    for _, _, median, tenth, _, _, *parts in lines:
        assert 0 < float(tenth) <= float(median)
        assert len(parts) == 6
        assert all(float(part) > 0 for part in parts)


def test_answers_that_end_before_the_measurement_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["host_time", "--streams", "1", "--turns", "999"])
    with pytest.raises(ValueError, match="fewer steps"):
        host_time.main()
