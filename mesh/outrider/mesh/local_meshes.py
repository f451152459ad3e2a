"""The meshes that `outrider up` of this user runs on this host: a file for each, which only this user can read."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from outrider.mesh.errors import ConfigError
from outrider.mesh.own_directory import is_private, own_directory
from outrider.mesh.urls import without_passwords

_PREFIX = "mesh-"


class LocalMesh(msgspec.Struct, frozen=True):
    """A mesh that runs.

    Attributes:
        pid: process id of `outrider up`.
        started: when that process started, in the kernel's ticks since the host did: ids are used again.
        url: where its gateway is.
        model: the name by which requests ask for its model.
        log_dir: where its logs are.
        nats_url: its broker; it may hold a password.
        since: seconds since 1970 at the start.
        ready: whether it has served yet.
        owner: who started it, as `whose` says.
    """

    pid: int
    started: int
    url: str
    model: str
    log_dir: str
    nats_url: str
    since: float
    ready: bool = False
    owner: str = ""

    @property
    def runs(self) -> bool:
        """Whether the process still lives."""
        return started(self.pid) == self.started


def started(pid: int) -> int:
    """When a process started, in ticks since the host did (proc_pid_stat(5)); 0 if it has ended."""
    with suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if state in "ZX" else int(fields[18])
    return 0


def whose() -> str:
    """Names the account of this process, or the user behind sudo, and HOME: people may share an account."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user} with HOME={os.environ.get('HOME', '')}"


def remember(mesh: LocalMesh) -> None:
    """Notes a mesh, if this user has a private place for that."""
    with suppress(OSError):
        own_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(own_directory()):
            new = _path(mesh.pid).with_suffix(".new")
            new.unlink(missing_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(mesh))
            new.replace(_path(mesh.pid))


def forget(pid: int) -> None:
    """Ends `remember`."""
    with suppress(OSError):
        _path(pid).unlink(missing_ok=True)


def local_meshes() -> list[LocalMesh]:
    """The meshes that run, the oldest first; removes what is noted of others."""
    found = []
    with suppress(OSError):
        if is_private(own_directory()):
            for path in own_directory().glob(f"{_PREFIX}*.json"):
                with suppress(OSError, msgspec.MsgspecError):
                    mesh = msgspec.json.decode(path.read_bytes(), type=LocalMesh)
                    if mesh.runs:
                        found.append(mesh)
                        continue
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda mesh: mesh.since)


def only_mesh(option: str, named: Callable[[LocalMesh], str] = lambda mesh: mesh.url) -> LocalMesh | None:
    """The one mesh that runs, or one of several at which ``named`` is the same; None without any.

    Raises:
        ConfigError: several run; the sentence says how ``option`` selects one of them by what ``named`` says.
    """
    meshes = {named(mesh): mesh for mesh in local_meshes()}
    if len(meshes) > 1:
        choices = "".join(
            f"\n  {option} {without_passwords(name)}   ({mesh.model} at {mesh.url})" for name, mesh in meshes.items()
        )
        raise ConfigError(f"several meshes of this user run here: {option} selects one of them:{choices}")
    return next(iter(meshes.values()), None)


def mesh_on(port: int) -> LocalMesh | None:
    """The mesh whose gateway is at ``port`` of this host."""
    return next((mesh for mesh in local_meshes() if mesh.url.endswith(f":{port}")), None)


def mesh_at(url: str | None) -> LocalMesh:
    """The mesh at ``url``, or the only one.

    Raises:
        ConfigError: none runs there, or several run and ``url`` is None.
    """
    found = only_mesh("--url") if url is None else next((each for each in local_meshes() if each.url == url), None)
    if found is None:
        raise ConfigError(
            f"no mesh of this user runs {'here' if url is None else f'at {url}'}: `outrider up` starts one, and "
            "`outrider ps` lists those that run"
        )
    return found


def _path(pid: int) -> Path:
    return own_directory() / f"{_PREFIX}{pid}.json"
