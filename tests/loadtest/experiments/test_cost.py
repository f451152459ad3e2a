"""The comparison of a mesh with a plain one."""

from __future__ import annotations

import pytest
from outrider.loadtest.experiments.cost import CONTROL, PLAIN, REQUESTS, SECURE, TOKENS, Turn, ratio


def test_a_mesh_is_compared_with_the_mean_of_the_plain_ones_of_the_same_repeat() -> None:
    rates = [(100.0, 102.0, 90.9), (50.0, 50.0, 46.0), (9.0, 11.0, 9.5)]
    turns = [
        Turn(REQUESTS, mesh, repeat, rate)
        for repeat, row in enumerate(rates)
        for mesh, rate in zip((PLAIN, CONTROL, SECURE), row, strict=True)
    ]
    turns += [Turn(TOKENS, PLAIN, 0, 1.0), Turn(TOKENS, CONTROL, 0, 1.0), Turn(TOKENS, SECURE, 0, 3.0)]
    assert ratio(turns, REQUESTS, SECURE) == pytest.approx(0.92)
    assert ratio(turns, REQUESTS, CONTROL) == pytest.approx(204 / 202)
    assert ratio(turns, TOKENS, SECURE) == 3.0
