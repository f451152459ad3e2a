"""Seconds of a step by its rows."""

from __future__ import annotations

import pytest
from outrider.engine.scheduling.cost_curve import CostCurve

CURVE = CostCurve([2, 4, 64], [0.1, 0.2, 3.2])


@pytest.mark.parametrize(
    ("seconds", "rows"), [(0.01, 1), (0.1, 2), (0.2, 4), (1.0, 20), (3.2, 64), (6.4, 128), (99, 256)]
)
def test_a_step_of_so_many_rows_takes_at_most_so_long(seconds: float, rows: int) -> None:
    assert CURVE.most_rows(seconds + 1e-9, 256) == rows
