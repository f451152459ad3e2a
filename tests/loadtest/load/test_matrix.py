"""Ratios within turns."""

from __future__ import annotations

import math

import pytest
from outrider.loadtest.load.turns import Case, Matrix, Turn
from outrider.measure.load.arrivals import Sample
from outrider.measure.load.client import Reply
from outrider.measure.load.summary import summarize

CASE = Case("code", 0.0, 1)


def turn(case: Case, mode: str, repeat: int, speed: float) -> Turn:
    reply = Reply([0.0, 100 / speed], 1, 0, 100, accepted_tokens=0, rejected_tokens=0, steps=100)
    return Turn(case, mode, repeat, summarize([Sample(0.0, reply)]))


def test_ratios_are_of_the_same_turn_and_their_median_counts() -> None:
    off, on = [100.0, 200.0, 400.0], [300.0, 400.0, 400.0]
    turns = [turn(CASE, "off", number, speed) for number, speed in enumerate(off)]
    turns += [turn(CASE, "on", number, speed) for number, speed in enumerate(on)]
    matrix = Matrix(turns)
    assert matrix.ratio(CASE, "on") == pytest.approx(2.0)
    assert matrix.ratio(CASE, "off") == 1.0
    assert math.isnan(matrix.ratio(CASE, "medusa"))
