"""Three servers of NATS in one cluster on this machine, each with a store of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from outrider.mesh.addresses import hold_port

SERVERS = 3


class Servers:
    """The servers; each keeps its ports and its store when it is killed and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = [hold_port() for _ in range(SERVERS)]
        self._routes = [hold_port() for _ in range(SERVERS)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> list[str]:
        """The servers' URLs."""
        return [f"nats://127.0.0.1:{port}" for port in self._ports]

    def start(self, place: int) -> None:
        """Starts one server; clients wait until it listens."""
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in self._routes)
        options = {
            "addr": "127.0.0.1",
            "port": self._ports[place],
            "name": f"server-{place}",
            "store_dir": self._folder / f"server-{place}",
            "log": self._folder / f"server-{place}.log",
            "cluster_name": "outages",
            "cluster": f"nats://127.0.0.1:{self._routes[place]}",
            "routes": routes,
        }
        flags = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        self._processes[place] = subprocess.Popen([_nats_server(), "--jetstream", *flags])

    def kill(self, place: int) -> None:
        """Kills one server, as a crash would."""
        process = self._processes.pop(place)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends all servers."""
        for place in list(self._processes):
            self.kill(place)


def _nats_server() -> str:
    return str(Path(sys.executable).parent / "nats-server")
