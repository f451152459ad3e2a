"""The benchmark of changing traffic, with the pocket model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from outrider.benches.verifier import shift


def test_swapped_and_learning_engines_answer_as_plain_decoding_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--streams", "4", "--rounds", "1", "--max-tokens", "16", "--pause", "0.05"]
    modes = ["--modes", "off", "static", "learning", "swapped"]
    monkeypatch.setattr(sys, "argv", ["shift", *sizes, *modes, "--out", str(tmp_path / "shift.json")])
    assert shift.main() == 0
    told = json.loads((tmp_path / "shift.json").read_text())
    assert [told["different"], len(told["parts"])] == [0, 8]
    assert told["swaps"] > 0
    assert {part["tokens"] > 0 for part in told["parts"]} == {True}
    assert "0 of 32 answers differ" in capsys.readouterr().out
