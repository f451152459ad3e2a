"""Runs pytest, and adds each test's outcome when it is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from outrider.native.share import cores

from gpu_proof.report import Report

_MOST_WORKERS = 8


class _Outcomes:
    """A plug-in of pytest that adds outcomes to a report."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a test that has run, or that could not be set up."""
        if report.when == "call" or report.failed:
            self._report.check(report.nodeid.removeprefix("tests/"), not report.failed, report.longreprtext)


def run_tests(report: Report, folder: str, paths: Sequence[str], expression: str, *, beside: bool) -> None:
    """Runs the tests in ``paths`` that ``expression`` selects; with ``beside``, in several processes.

    Only conftest.py files in ``folder`` are read: those of the whole suite start brokers, which the machine lacks.
    """
    workers = min(_MOST_WORKERS, cores()) if beside else 0
    arguments = [*paths, "-k", expression, "-q", "-n", str(workers), "--maxfail=40", "-p", "no:cacheprovider"]
    arguments += ["-o", "filterwarnings=default", "-p", "gpu_proof.checks.profile", f"--confcutdir={folder}"]
    code = pytest.main(arguments, plugins=[_Outcomes(report)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        report.check("the tests run", False, f"pytest ended with {code!r}")
