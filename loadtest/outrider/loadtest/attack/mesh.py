"""The attacked mesh: two gateways, two verifiers and a broker with a small store; dead processes restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from outrider.loadtest.meshes import tenant_mesh
from outrider.mesh.addresses import hold_port
from outrider.wire.tenants import Limits

GATEWAYS = 2
STORE_BYTES = 64 << 20
DISK_BYTES = 2 * STORE_BYTES
"""Bytes that the broker's own limit lets it store, and bytes of its disk."""
_REPLAY_BYTES = 12 << 20
_READY_S = 180.0
_STOP_S = 40.0
VICTIM, ATTACKER = "victim", "attacker"


class Broker:
    """A nats-server with JetStream; restarts keep its port and its store.

    The ``store`` is a small separate file system if this process may mount one (``has_disk``).
    """

    def __init__(self, folder: Path) -> None:
        self._port, self._config, self._log = hold_port(), folder / "nats.conf", folder / "nats.log"
        self.store = folder / "nats"
        self.store.mkdir()
        size = f"size={DISK_BYTES}"
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.store)], capture_output=True)
        self.has_disk = not mount.returncode
        store = f'store_dir: "{self.store}", max_file_store: {STORE_BYTES}'
        self._config.write_text(f'listen: "127.0.0.1:{self._port}"\njetstream: {{ {store} }}\n')
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL of the broker."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id; 0 while the broker is dead."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Starts the broker; returns when it listens."""
        server = Path(sys.executable).parent / "nats-server"
        self._process = _spawn([str(server), "--config", str(self._config)], self._log)
        await until(lambda: listens(self._port))

    def kill(self) -> None:
        """Kills the broker, as a crash would."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends the broker for good."""
        self.kill()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.store)], check=True)


class Mesh:
    """A running mesh: the gateways' ``urls`` and ``grpcs`` (host:port), ``keys`` by tenant, and all processes."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder)
        self.urls = [f"http://127.0.0.1:{hold_port()}" for _ in range(GATEWAYS)]
        self.grpcs = [f"127.0.0.1:{hold_port()}" for _ in range(GATEWAYS)]
        self.keys: dict[str, str] = {}
        self._folder = folder
        self._ups: list[subprocess.Popen[bytes]] = []

    def pids(self, kind: str) -> list[int]:
        """Ids of running processes of ``kind``, or of ``nats``."""
        if kind == "nats":
            return [self.broker.pid] if self.broker.pid else []
        return [pid for up in self._ups for pid in _children(up.pid) if _title(pid) == f"outrider {kind}"]

    def kill(self, kind: str, only: int | None = None) -> None:
        """Kills all processes of ``kind`` at once, or the ``only``-th; killed services restart."""
        pids = self.pids(kind)
        for pid in pids if only is None else pids[only : only + 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def ready(self) -> None:
        """Returns when every gateway is ready to complete; `TimeoutError` after minutes."""
        for url in self.urls:
            await self._wait_for_answer(f"{url}/readyz", {})
        await until(lambda: len(self.pids("verifier")) == GATEWAYS)

    async def start(self) -> None:
        """Starts all processes, and creates the two tenants."""
        await self.broker.start()
        for number in range(GATEWAYS):
            self._ups.append(self._up(number))
        await self.ready()
        self.keys = await tenant_mesh.store_tenants(self.broker.url, {VICTIM: Limits(), ATTACKER: Limits()})
        for url in self.urls:
            for key in self.keys.values():
                await self._wait_for_answer(f"{url}/v1/models", {"authorization": f"Bearer {key}"})

    def stop(self) -> None:
        """Ends all processes."""
        for up in self._ups:
            up.send_signal(signal.SIGTERM)
        for up in self._ups:
            try:
                up.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                up.kill()
                up.wait()
        self.broker.close()

    def _up(self, number: int) -> subprocess.Popen[bytes]:
        settings = {
            "gateway.grpc_port": self.grpcs[number].rpartition(":")[2],
            "gateway.auth": "keys",
            "gateway.replay_bytes": str(_REPLAY_BYTES),
            "verifier.threads": "1",
        }
        command = [sys.executable, "-c", "from outrider.cli.main import main; main()", "up"]
        command += ["--port", self.urls[number].rpartition(":")[2], "--nats-url", self.broker.url]
        command += ["--log-dir", str(self._folder / f"mesh-{number}")]
        command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return _spawn(command, self._folder / f"mesh-{number}.log")

    async def _wait_for_answer(self, url: str, headers: dict[str, str]) -> None:
        """Returns when ``url`` answers with 200."""
        async with asyncio.timeout(_READY_S), httpx.AsyncClient(trust_env=False, timeout=10, headers=headers) as http:
            while not await _is_available(http, url):
                if any(up.poll() is not None for up in self._ups):
                    raise SystemExit("a part of the mesh has ended and did not restart")
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running() -> AsyncIterator[Mesh]:
    """Runs a mesh in a temporary folder inside the block."""
    with tempfile.TemporaryDirectory(prefix="outrider-attack-") as folder:
        mesh = Mesh(Path(folder))
        try:
            began = time.monotonic()
            await mesh.start()
            print(f"The mesh was ready after {time.monotonic() - began:.0f} s.", flush=True)
            yield mesh
        finally:
            await asyncio.to_thread(mesh.stop)


async def until(condition: Callable[[], object], seconds: float = _READY_S) -> None:
    """Returns when ``condition()`` is true; `TimeoutError` after ``seconds``."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    return ""


def listens(port: int) -> bool:
    """Whether a server accepts connections to ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def _is_available(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.TransportError:
        return False
