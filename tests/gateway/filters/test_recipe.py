"""The filter that the documentation shows, as a package outside this repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.filters.filter import Passed
from outrider.gateway.filters.installed import InstalledFilters
from outrider.gateway.settings import GatewaySettings

from tests.gateway.filters.reading import passed_by
from tests.recipes import install_recipe


async def test_a_filter_from_another_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_recipe("filters.md", "outrider_digits", tmp_path / "sources", tmp_path / "installed")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    options = {"digits": {"sign": "*"}, "hash": {"plugin": "digits"}}
    installed = InstalledFilters(GatewaySettings(filters=["digits"], filter_options=options))
    names = installed.answer_filters(Caller())
    assert await passed_by(installed.chain(names), ["a1", "b22"]) == Passed("a*b**", ("digits.digit",) * 2)
    assert (await passed_by(installed.chain(["hash"]), ["a1"])).text == "a#"
