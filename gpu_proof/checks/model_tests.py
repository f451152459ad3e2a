"""Runs the tests of whole models and of graphs that use a GPU where there is one."""

from __future__ import annotations

from gpu_proof.checks.testing import run_tests
from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_FILES = [
    "tests/engine/models/test_triton.py",
    "tests/engine/models/operators/test_graphs.py",
    "tests/engine/models/test_quants.py",
]
_DRY = "refused or too_many_rows"


def run(report: Report, sizes: Sizes) -> None:
    """Adds a check for each test."""
    dry = sizes.device.type == "cpu"
    run_tests(report, "tests/engine/models", _FILES[:2], _DRY if dry else "not kernel_report", beside=not dry)
