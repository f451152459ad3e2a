"""Runs the kernels' own tests, which use a GPU where there is one."""

from __future__ import annotations

from gpu_proof.checks.testing import run_tests
from gpu_proof.report import Report
from gpu_proof.sizes import Sizes


def run(report: Report, sizes: Sizes) -> None:
    """Adds a check for each test."""
    dry = sizes.device.type == "cpu"
    files = ["tests/kernels/test_swiglu.py", "tests/kernels/test_kv_quant.py"] if dry else ["tests/kernels"]
    run_tests(report, "tests/kernels", files, "" if dry else "not report and not bench", beside=not dry)
