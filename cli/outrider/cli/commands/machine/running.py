"""`outrider ps`, `logs` and `stop`: the meshes of this machine that run."""

from __future__ import annotations

import os
import select
import signal
import time
from datetime import datetime
from pathlib import Path

from outrider.cli.log_lines import LogLines
from outrider.cli.stores.store import print_table
from outrider.mesh.errors import ConfigError
from outrider.mesh.local_meshes import LocalMesh, local_meshes, mesh_at, whose
from outrider.mesh.urls import without_passwords

INTERRUPTED = 130
_FOLLOW_S = 0.2
_COLUMNS = ("url", "model", "since", "state", "pid", "broker", "logs")


def ps() -> int:
    """Prints a line for each mesh; returns the exit code."""
    if meshes := local_meshes():
        print_table(_COLUMNS, map(_row, meshes))
    else:
        print("No mesh of this user runs here: `outrider up` starts one.")
    return 0


def logs(url: str | None, service: str, follow: bool) -> int:
    """Prints the logs of a mesh, all or those of ``service``; with ``follow`` until the mesh ends or Ctrl-C."""
    mesh = mesh_at(url)
    lines = LogLines(Path(mesh.log_dir), service)
    try:
        _print_new(lines)
        while follow and mesh.runs:
            time.sleep(_FOLLOW_S)
            _print_new(lines)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def stop(url: str | None) -> int:
    """Asks a mesh to drain, and returns when it has ended; the exit code."""
    mesh = mesh_at(url)
    if url is None and mesh.owner not in ("", whose()):
        raise ConfigError(
            f"{mesh.owner} started the mesh of {mesh.model} at {mesh.url}, and you are {whose()}: "
            f"`outrider stop --url {mesh.url}` stops the mesh nevertheless"
        )
    process = os.pidfd_open(mesh.pid)
    if mesh.runs:  # else the id is another's by now
        print(f"Draining the mesh of {mesh.model} at {mesh.url} (pid {mesh.pid}) …", flush=True)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        try:
            select.select([process], [], [])
        except KeyboardInterrupt:
            print(f"It goes on draining (pid {mesh.pid}).")
            return INTERRUPTED
    print("Stopped.")
    return 0


def _row(mesh: LocalMesh) -> tuple[object, ...]:
    since = datetime.fromtimestamp(mesh.since).isoformat(" ", "seconds")
    state = "serves" if mesh.ready else "starts"
    return mesh.url, mesh.model, since, state, mesh.pid, without_passwords(mesh.nats_url), mesh.log_dir


def _print_new(lines: LogLines) -> None:
    several = len(lines.names) > 1
    for name, line in lines.new():
        print(f"{name:<12} {line}" if several else line, flush=True)
