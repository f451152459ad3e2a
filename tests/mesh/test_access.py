"""How clients and commands of a user find the mesh that the same user runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.mesh.access import BROKERS, CA, GATEWAYS, KEY, Access, access_to, login_at
from outrider.mesh.bus import Login

from tests.certificates import Certified

URL = "https://127.0.0.1:8443"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


@pytest.fixture
def secure(tmp_path: Path) -> Path:
    directory = Certified(tmp_path / "secure").directory.path
    (directory / KEY).write_text("sk-1-secret\n")
    return directory


def test_a_secure_mesh_is_found_with_its_authority_and_key(secure: Path) -> None:
    GATEWAYS.remember(URL, secure)
    assert access_to(URL) == Access(URL, secure / CA, "sk-1-secret")
    assert access_to("https://localhost:8443").ca == secure / CA
    assert access_to(URL).headers == {"authorization": "Bearer sk-1-secret"}
    GATEWAYS.forget(URL)
    assert access_to(URL) == Access(URL)


def test_what_is_given_wins(secure: Path, tmp_path: Path) -> None:
    GATEWAYS.remember(URL, secure)
    assert access_to(URL, tmp_path / "own.crt", "own") == Access(URL, tmp_path / "own.crt", "own")


def test_the_key_never_goes_in_the_clear(secure: Path) -> None:
    GATEWAYS.remember(URL, secure)
    assert access_to("http://127.0.0.1:8443").key == ""


def test_without_a_url_the_mesh_at_the_usual_port_is_meant(secure: Path) -> None:
    assert access_to(None) == Access("http://127.0.0.1:8080")
    GATEWAYS.remember("https://127.0.0.1:8080", secure)
    assert access_to(None) == Access("https://127.0.0.1:8080", secure / CA, "sk-1-secret")


def test_a_directory_that_others_may_enter_is_not_believed(secure: Path, runtime: Path) -> None:
    GATEWAYS.remember(URL, secure)
    (runtime / "outrider").chmod(0o755)
    assert access_to(URL) == Access(URL)


def test_a_broker_is_joined_by_settings_or_else_as_the_one_that_runs(secure: Path, tmp_path: Path) -> None:
    url = "tls://127.0.0.1:4222"
    assert login_at(url, "admin")[0] == Login("admin")
    BROKERS.remember(url, secure)
    login, trust = login_at(url, "admin")
    assert (login, trust.name) == (Login("admin", secure / "admin.nk"), "broker.outrider.internal")
    assert login_at(url, "admin", str(tmp_path / "own.nk"))[0].credentials == tmp_path / "own.nk"
