"""Unix sockets where a process listens at one, and TCP elsewhere."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from outrider.mesh.errors import ConfigError
from outrider.mesh.rpc import Server, channel, close_channels, local_target, new_socket


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="outrider-", dir="/tmp") as path:
        yield Path(path)


async def test_a_server_is_reached_by_its_socket_for_as_long_as_it_listens(short: Path) -> None:
    path = new_socket(str(short / "sockets"))
    assert path is not None
    server = Server(socket=path)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    target = local_target(address, str(path))
    assert target == f"unix:{path}"
    health = await health_pb2_grpc.HealthStub(channel(target)).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    await close_channels()
    await server.stop(0)
    assert local_target(address, str(path)) == address
    assert not path.exists()


@pytest.mark.parametrize("path", [None, "", 7, "/nowhere/at.all", "/dev/null"])
def test_what_is_no_socket_here_is_reached_by_tcp(path: object) -> None:
    assert local_target("host:1", path) == "host:1"


def test_sockets_that_killed_processes_left_are_removed_and_others_are_not(short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short / "dead.sock"))
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(short / "alive.sock"))
        alive.listen()
        (short / "other").touch()
        assert new_socket(str(short)) != new_socket(str(short))
        assert {path.name for path in short.iterdir()} == {"alive.sock", "other"}


def test_by_itself_it_is_a_directory_that_nobody_else_may_use(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    path = new_socket("auto")
    assert path is not None
    assert path.parent == short / "outrider"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.chmod(0o777)
    assert new_socket("auto") is None
    assert new_socket("") is None


def test_a_directory_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / ("long" * 30)):
        with pytest.raises(ConfigError, match="sockets = "):
            new_socket(str(wrong))


def test_a_directory_that_others_may_enter_is_refused_where_the_socket_has_to_be_private(short: Path) -> None:
    shared = short / "shared"
    shared.mkdir(mode=0o755)
    assert new_socket(str(shared)) is not None
    with pytest.raises(ConfigError, match=r"sockets = .*others"):
        new_socket(str(shared), private=True)
    assert new_socket(str(short / "made"), private=True) is not None
