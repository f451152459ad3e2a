"""How clients and commands of a user find the mesh that the same user runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from outrider.mesh.access import BROKERS, CA, GATEWAYS, KEY, Access, access_to, login_at
from outrider.mesh.bus import Login
from outrider.mesh.errors import ConfigError
from outrider.mesh.local_meshes import LocalMesh, forget, local_meshes, mesh_at, only_mesh, remember, started

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


def local(pid: int, port: int = 8080, nats: str = "nats://u:secret@h:4222") -> LocalMesh:
    return LocalMesh(pid, started(pid), f"http://127.0.0.1:{port}", "pocket", "/tmp/logs", nats, since=float(port))


def test_a_mesh_is_noted_in_a_file_that_only_its_user_reads(runtime: Path) -> None:
    assert local_meshes() == []
    remember(local(os.getpid()))
    (file,) = (runtime / "outrider").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert local_meshes() == [local(os.getpid())]
    forget(os.getpid())
    assert local_meshes() == []


def test_notes_of_processes_that_ended_or_whose_id_is_anothers_are_removed(runtime: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    remember(local(ended.pid))
    assert len(local_meshes()) == 1
    ended.communicate()
    assert local_meshes() == []
    own = local(os.getpid())
    remember(LocalMesh(own.pid, own.started - 1, *(getattr(own, name) for name in own.__struct_fields__[2:])))
    (runtime / "outrider" / "mesh-1.json").write_text("{")
    assert (local_meshes(), list((runtime / "outrider").iterdir())) == ([], [])


def test_of_several_meshes_one_has_to_be_named(runtime: Path) -> None:
    with pytest.raises(ConfigError, match="no mesh of this user runs here: `outrider up` starts one"):
        mesh_at(None)
    remember(local(os.getpid(), 8080))
    assert mesh_at(None) == only_mesh("--url") == local(os.getpid(), 8080)
    remember(local(os.getppid(), 8090))
    with pytest.raises(ConfigError, match="several meshes") as refused:
        mesh_at(None)
    chosen = [line.split()[:2] for line in str(refused.value).splitlines()[1:]]
    assert chosen == [["--url", "http://127.0.0.1:8080"], ["--url", "http://127.0.0.1:8090"]]
    assert mesh_at("http://127.0.0.1:8090").pid == os.getppid()
    with pytest.raises(ConfigError, match=r"runs at http://127\.0\.0\.1:1:"):
        mesh_at("http://127.0.0.1:1")
    found = only_mesh("--nats-url", lambda mesh: mesh.nats_url)
    assert found is not None, "both are at one broker"


def test_meshes_in_a_directory_that_others_may_enter_are_not_believed(runtime: Path) -> None:
    remember(local(os.getpid()))
    (runtime / "outrider").chmod(0o755)
    assert local_meshes() == []
