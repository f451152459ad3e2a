"""Plug-ins through real distributions: a `.dist-info` folder on the path."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.mesh.errors import ConfigError
from outrider.mesh.plugins import available, load

GROUP = "outrider.test_drafters"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\ngood = third_party_good:Drafter\nbad = third_party_bad:Drafter\n"
    )
    (tmp_path / "third_party_good.py").write_text("class Drafter: ...\n")
    (tmp_path / "third_party_bad.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_plugin_is_loaded_by_its_name() -> None:
    assert load(GROUP, "good").__name__ == "Drafter"


def test_a_plugin_that_is_asked_for_and_is_not_there_is_an_error_that_lists_what_is() -> None:
    with pytest.raises(ConfigError, match=r"no 'goood' among outrider\.test_drafters: there are bad, good"):
        load(GROUP, "goood")


def test_a_plugin_that_is_asked_for_and_cannot_be_imported_is_an_error_that_names_its_package() -> None:
    with pytest.raises(ConfigError, match="'bad' of third-party cannot be loaded: No module named"):
        load(GROUP, "bad")


def test_a_plugin_that_is_only_found_and_cannot_be_imported_is_left_out() -> None:
    assert list(available(GROUP)) == ["good"]
