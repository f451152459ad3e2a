"""The proof keeps what stages found, whatever ends them, and shows it on one page."""

from __future__ import annotations

import os
from importlib.metadata import distributions
from pathlib import Path

import pytest

from gpu_proof import machine, pack
from gpu_proof.page import MOST, failed, page
from gpu_proof.report import Report, read
from gpu_proof.stages import STAGES, Ended, Stage, run_all

DONE = [Ended(stage, 1.0, "done", "") for stage in STAGES]


def test_what_a_stage_found_stays_when_the_stage_is_killed(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    report = Report("kernels", results, 60)
    report.check("a", True)
    with report.attempt("b"):
        raise ValueError("wrong bits")
    with results.open("a") as file:
        file.write('{"stage": "kernels", "kind": "che')
    passed = [(line["name"], line["passed"]) for line in read(results)]
    assert passed == [("a", True), ("b", False)]
    assert "wrong bits" in read(results)[1]["detail"]


def test_a_fault_of_the_device_ends_its_stage(tmp_path: Path) -> None:
    report = Report("kernels", tmp_path / "results.jsonl", 60)
    with pytest.raises(SystemExit, match="linear"), report.attempt("linear"):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    assert [line["passed"] for line in read(tmp_path / "results.jsonl")] == [False]


def test_cases_for_which_there_is_no_time_are_counted(tmp_path: Path) -> None:
    report = Report("limits", tmp_path / "results.jsonl", 0)
    assert list(report.in_time([1, 2, 3], "cases")) == []
    assert read(tmp_path / "results.jsonl")[0]["text"] == "3 of 3 cases left out: no time"


def test_a_stage_that_hangs_or_crashes_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "own" / "gpu_proof"
    made.mkdir(parents=True)
    (made / "child.py").write_text(
        "import os, subprocess, sys, time\n"
        "if sys.argv[1] == 'hangs':\n"
        "    subprocess.Popen(['sleep', '600']); print('hanging', flush=True); time.sleep(600)\n"
        "if sys.argv[1] == 'crashes':\n    print('crashing', flush=True); os.abort()\n"
    )
    monkeypatch.chdir(made.parent)
    own = [Stage("hangs", "hangs", 1), Stage("crashes", "crashes", 9), Stage("passes", "passes", 9)]
    files = tmp_path / "results.jsonl", tmp_path / "log.txt"
    ended = list(run_all(*files, 190, os.environ, dry=True, stages=own))
    assert [each.how for each in ended] == ["stopped at its limit of 10 s", "ended with code -6", "done"]
    assert "hanging" in ended[0].tail
    assert "crashing" in ended[1].tail


def test_failures_come_before_figures_and_a_long_page_is_cut() -> None:
    lines = [{"stage": "kernels", "kind": "figures", "table": f"T{i}", "row": {"x": float(i)}} for i in range(900)]
    lines.append({"stage": "kernels", "kind": "check", "name": "bits", "passed": False, "detail": "7 differ"})
    text = page({"card": "H100"}, DONE, lines)
    assert len(text) <= MOST
    assert text.index("7 differ") < text.index("T0")
    assert "more sections are in results.jsonl" in text
    assert failed(DONE, lines)
    assert not failed(DONE, lines[:-1])


def test_plug_ins_are_found_where_outrider_is_not_installed(tmp_path: Path) -> None:
    machine.write_plugins(tmp_path)
    [found] = distributions(path=[str(tmp_path)])
    points = {(point.group, point.name) for point in found.entry_points}
    assert {("outrider.drafters", "ngram"), ("outrider.acceptance", "race")} <= points


def test_every_package_of_the_pack_is_pinned() -> None:
    assert {name.lower() for name in pack.PACKAGES} <= pack.pinned().keys()
