"""Services on their own broker, for measurements that send requests to one certain process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member, Registry

_READY_S = 120.0
_STOP_S = 20.0


class Site:
    """A broker and the services started on it; see `open_site`."""

    def __init__(self, url: str, logs: Path, registry: Registry, broker: int) -> None:
        self.url, self._logs, self.registry = url, logs, registry
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._broker = broker

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the running processes by name, ``nats`` included."""
        running = {name: process.pid for name, process in self._processes.items() if process.poll() is None}
        return running | {"nats": self._broker}

    async def start(self, kind: str, name: str, **settings: object) -> Member:
        """Starts ``python -m outrider.<kind>`` with settings as flags; returns the member when it is ready.

        Raises:
            Unavailable: the service did not become ready in time.
        """
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", f"outrider.{kind}", f"--nats-url={self.url}", f"--instance={name}", *flags]
        self._spawn(name, command)
        await self.registry.wait_for(kind, lambda members: any(member.instance == name for member in members), _READY_S)
        return self.member(kind, name)

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def member(self, kind: str, name: str) -> Member:
        """The member of ``kind`` with the instance ``name``."""
        return next(member for member in self.registry.members(kind) if member.instance == name)

    def kill(self, name: str) -> None:
        """Kills a process, as a crash would."""
        self._processes[name].kill()
        self._processes[name].wait()

    def end(self) -> None:
        """Ends all processes."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@asynccontextmanager
async def open_site(*, stores: bool = False) -> AsyncIterator[Site]:
    """Opens an empty site, which ends with the block; with ``stores``, its broker has JetStream."""
    port = hold_port()
    url = f"nats://127.0.0.1:{port}"
    bus = Bus()
    with tempfile.TemporaryDirectory(prefix="outrider-") as logs:
        broker = _start_broker(port, ["--jetstream", "--store_dir", f"{logs}/nats"] if stores else [])
        try:
            await bus.connect(url, "loadtest", wait_s=10)
            registry = Registry(bus, "loadtest", f"loadtest-{port}")
            await registry.start()
            site = Site(url, Path(logs), registry, broker.pid)
            try:
                yield site
            finally:
                await asyncio.to_thread(site.end)
                registry.leave()
        finally:
            await bus.close()
            broker.terminate()
            broker.wait()


def _start_broker(port: int, options: list[str]) -> subprocess.Popen[bytes]:
    server = Path(sys.executable).parent / "nats-server"
    return subprocess.Popen([server, "-a", "127.0.0.1", "-p", str(port), *options], stderr=subprocess.DEVNULL)
