"""Workloads without repetition, ratios within turns, and their bars."""

from __future__ import annotations

import math

import msgspec
import pytest
from outrider.loadtest.load.arrivals import Sample
from outrider.loadtest.load.client import Reply
from outrider.loadtest.load.code_workloads import WORKLOADS, CodeSupply, edit
from outrider.loadtest.load.prompts import PromptsError
from outrider.loadtest.load.summary import summarize
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.loadtest.report.matrix_report import judge, publish

CASE = Case("code", 0.0, 1)


def turn(case: Case, mode: str, repeat: int, speed: float) -> Turn:
    reply = Reply([0.0, 100 / speed], 1, 0, 100, accepted_tokens=0, rejected_tokens=0, steps=100)
    return Turn(case, mode, repeat, summarize([Sample(0.0, reply)]))


def test_no_piece_of_code_is_handed_out_twice() -> None:
    supply = CodeSupply(start=300)
    taken = [prompt for _ in range(10) for prompt in supply.take("code", 25)]
    assert len(set(taken)) == 250
    with pytest.raises(PromptsError, match="too few to use each once"):
        supply.take("code", 250)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_piece_makes_a_prompt_of_every_workload(workload: str) -> None:
    assert all(CodeSupply().take(workload, 300))


def test_an_edit_shows_the_code_and_the_beginning_of_a_copy_with_another_name() -> None:
    piece = "".join(f"counter = counter + {number}\n" for number in range(16))
    prompt = edit(piece)
    assert prompt.startswith("counter = counter + 0\ncounter = counter + 1\n")
    assert prompt.endswith(":\n\nnew_counter = new_counter + 0\nnew_counter = new_counter + 1\n")


def test_ratios_are_of_the_same_turn_and_their_median_counts() -> None:
    off, on = [100.0, 200.0, 400.0], [300.0, 400.0, 400.0]
    turns = [turn(CASE, "off", number, speed) for number, speed in enumerate(off)]
    turns += [turn(CASE, "on", number, speed) for number, speed in enumerate(on)]
    matrix = Matrix(turns)
    assert matrix.ratio(CASE, "on") == pytest.approx(2.0)
    assert matrix.ratio(CASE, "off") == 1.0
    assert math.isnan(matrix.ratio(CASE, "medusa"))


def test_bars_name_the_worst_case_and_the_best_drafter() -> None:
    busy = Case("code", 0.0, 8)
    speeds = {"off": (100, 100), "model": (200, 110), "ngram": (150, 120), "on": (260, 90), "fast": (130, 100)}
    turns = [
        turn(case, mode, 0, speed)
        for mode, pair in speeds.items()
        for case, speed in zip((CASE, busy), pair, strict=True)
    ]
    bars = {bar.what: bar for bar in judge(Matrix(turns))}
    assert bars["on / off, code, T=0, 1 at a time"].met
    assert not bars["on / fast, code, T=0, 1 at a time"].met
    assert bars["ngram / off at its worst, code, T=0, 8 at a time"].value == pytest.approx(1.2)
    assert not bars["on / off at its worst, code, T=0, 8 at a time"].met
    assert bars["on / the best drafter alone (ngram) at its worst, code, T=0, 8 at a time"].value == pytest.approx(0.75)


def test_the_report_has_figures_bars_and_a_picture(tmp_path, capsys) -> None:
    publish([turn(CASE, mode, 0, speed) for mode, speed in (("off", 100), ("on", 50))], {"repeats": 1}, tmp_path)
    report = msgspec.json.decode((tmp_path / "matrix.json").read_bytes())
    assert {figure["mode"]: round(figure["to_off"], 3) for figure in report["figures"]} == {"off": 1.0, "on": 0.5}
    assert [bar["met"] for bar in report["bars"]] == [False, False]
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
    assert "missed" in capsys.readouterr().out
