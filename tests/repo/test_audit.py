"""`make audit` tells vulnerabilities from the lack of an answer."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "requirements" / "audit.py"
SPEC = util.spec_from_file_location("audit", FILE)
assert SPEC is not None
assert SPEC.loader is not None
audit = util.module_from_spec(SPEC)
SPEC.loader.exec_module(audit)

UNKNOWN = {"name": "outrider", "skip_reason": "Dependency not found on PyPI"}
SOUND = {"name": "rich", "version": "15.0.0", "vulns": []}
HOLED = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}


def test_a_vulnerability_fails_and_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report([SOUND, HOLED, HOLED, UNKNOWN]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "outrider is not audited: the service does not know the package.",
        "jinja2 2.4.1 has PYSEC-2019-217.",
        "2 packages are audited, 1 vulnerabilities are known.",
    ]
    assert audit.report([SOUND]) == 0


def test_an_index_that_knows_no_package_says_nothing_of_vulnerabilities(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report([UNKNOWN]) == 0
    assert capsys.readouterr().out == "Nothing is audited: the package index here has no data of vulnerabilities.\n"
