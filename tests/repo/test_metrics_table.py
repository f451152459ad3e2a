"""The page of metrics describes the metrics of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_tables_of_metrics_are_those_that_the_code_makes(tmp_path: Path) -> None:
    page, made = REPOSITORY / "docs" / "metrics.md", tmp_path / "metrics.md"
    made.write_text(page.read_text())
    subprocess.run([sys.executable, "-m", "outrider.mesh.telemetry.metrics_table", made], check=True, timeout=120)
    assert made.read_text() == page.read_text(), "run `make metrics-table`"
