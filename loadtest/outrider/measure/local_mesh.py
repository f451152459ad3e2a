"""A mesh for a load test: `outrider up` as a child process, its processes' ids and metrics."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from outrider.mesh.access import access_to
from outrider.mesh.addresses import hold_port

ALWAYS = "outrider.benches.verifier.always"
"""Verifiers that ask every drafter at every step, and that admit requests in batches."""
_OUTPUT, _SERVES = "up.txt", "Outrider serves at"
_READY_S = 600.0
"""Long enough to load a large model."""


class _Line(msgspec.Struct):
    event: str = ""
    probes: str = ""


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds ``--model`` and ``--draft``, parameters of `running`."""
    parser.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face directory; else the shipped target")
    parser.add_argument("--draft", type=Path, metavar="DIR", help="directory of a draft model with the same vocabulary")


class LocalMesh:
    """A mesh on this machine: ``url`` of its gateway, process ids and metrics of its services."""

    def __init__(self, url: str, pid: int, logs: Path) -> None:
        self.url, self._pid, self._logs = url, pid, logs
        self._scheme = url.partition(":")[0]

    def pids(self, kind: str) -> list[int]:
        """Ids of running processes of ``kind``, or of ``nats``, oldest first."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return [int(pid) for pid in children if _is(_title(pid), kind)]

    @property
    def nats_url(self) -> str:
        """URL of the mesh's NATS."""
        arguments = _title(str(self.pids("nats")[0])).split("\0")
        return f"{'tls' if self._scheme == 'https' else 'nats'}://127.0.0.1:{arguments[arguments.index('--port') + 1]}"

    def restart(self) -> None:
        """Has `outrider up` replace all services, one process at a time."""
        os.kill(self._pid, signal.SIGHUP)

    def output(self) -> str:
        """What `outrider up` has printed."""
        return (self._logs / _OUTPUT).read_text()

    def metric(self, kind: str, name: str) -> float | None:
        """Sum of a metric over all processes of ``kind`` and all labels; None if no process has the metric."""
        values = [value for port in self._probes(kind) for value in _read(f"{self._scheme}://{port}/metrics", name)]
        return sum(values) if values else None

    def metrics_urls(self, kinds: Iterable[str]) -> list[str]:
        """Where processes of ``kinds`` show their metrics."""
        return [f"{self._scheme}://{port}/metrics" for kind in kinds for port in self._probes(kind)]

    def _probes(self, kind: str) -> list[str]:
        logs = sorted(self._logs.glob(f"{kind}-*.log"))
        return [probes for log in logs for probes in [_last_probes(log.read_bytes())] if probes]


@contextlib.contextmanager
def running(
    settings: Mapping[str, str],
    verifiers: int = 1,
    proposers: int | None = 1,
    kvcaches: int = 0,
    prefills: int = 0,
    model: Path | None = None,
    draft: Path | None = None,
    program: str | None = None,
    secure: bool = False,
    more: Sequence[str] = (),
) -> Iterator[LocalMesh]:
    """Runs a mesh with ``settings`` (``service.key``) over the defaults, inside the block or until SIGTERM.

    ``prefills`` are verifiers that compute prompts for the others. With ``proposers`` None, `outrider up` chooses their
    number. ``model`` and ``draft`` are Hugging Face directories; None means the shipped models.
    Verifiers run the module ``program``, in place of `outrider.verifier`. With ``secure`` the mesh is that of
    `outrider up --secure`, which `access_to` finds by its URL. ``more`` are further arguments of `outrider up`.

    Raises:
        SystemExit: the mesh did not become ready.
    """
    port = hold_port()
    counts: dict[str, Any] = {"--port": port, "--verifiers": verifiers, "--proposers": proposers}
    counts |= {"--kvcaches": kvcaches, "--prefills": prefills, "--model": model, "--draft": draft}
    counts |= {"--program": program and f"verifier={program}"}
    command = [sys.executable, "-c", "from outrider.cli.main import main; main()", "up"]
    command += [str(part) for pair in counts.items() if pair[1] is not None for part in pair]
    command += [*(["--secure"] if secure else []), *more]
    ports = {"gateway.grpc_port": str(hold_port())}
    command += [part for key, value in (ports | dict(settings)).items() for part in ("--set", f"{key}={value}")]
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="outrider-") as logs:
        with (Path(logs) / _OUTPUT).open("wb") as output:
            process = subprocess.Popen([*command, "--log-dir", logs], stdout=output)
        try:
            url = f"{'https' if secure else 'http'}://127.0.0.1:{port}"
            mesh = LocalMesh(url, process.pid, Path(logs))
            _wait(mesh, process)
            yield mesh
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _wait(mesh: LocalMesh, process: subprocess.Popen[bytes]) -> None:
    """Returns when all processes are ready; a gateway is ready as soon as one verifier is."""
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            ready = httpx.get(f"{mesh.url}/readyz", trust_env=False, verify=False).is_success
            if ready and _SERVES in mesh.output() and _is_open(mesh.url):
                return
        time.sleep(0.2)
    raise SystemExit("the mesh did not become ready")


def _is_open(url: str) -> bool:
    """Whether clients know the way to a mesh that is ready: a secure one makes its first key then."""
    return url.startswith("http:") or access_to(url).ca is not None


def _title(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    except OSError:
        return ""


def _is(title: str, kind: str) -> bool:
    return title.split("\0")[0].endswith("nats-server") if kind == "nats" else title == f"outrider {kind}"


def _last_probes(log: bytes) -> str:
    """Address of the probes of the last process in a log that became ready; empty without one."""
    probes = ""
    for line in log.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            entry = msgspec.json.decode(line, type=_Line)
            probes = entry.probes if entry.event == "ready" else probes
    return probes


def _read(url: str, name: str) -> list[float]:
    with contextlib.suppress(httpx.TransportError):
        lines = httpx.get(url, trust_env=False, verify=False).text.splitlines()
        return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return []
