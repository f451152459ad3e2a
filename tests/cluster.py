"""Three servers of NATS in one cluster, whose configuration is that of `outrider bus config --cluster`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from outrider.cli.bus.cluster import PORT
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus, find_login
from outrider.mesh.errors import Unavailable
from outrider.mesh.security import Files, Trust

from tests.broker import Broker

SERVERS = 3
_HOST = "127.0.0.1"


class Cluster:
    """Servers of one cluster; each has users, a store and a port of its own, and restarts keep these."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.users, self._folder = BusDirectory(folder / "bus"), folder
        if files:
            self.users.encrypt(files)
        self.users.join_cluster([_HOST] * SERVERS, files)
        self.users.write()
        self._routes = [hold_port() for _ in range(SERVERS)]
        self.servers = [self._server(place) for place in range(SERVERS)]

    @property
    def urls(self) -> list[str]:
        """URLs of the servers."""
        return [server.url.replace("nats", self.users.scheme, 1) for server in self.servers]

    @property
    def url(self) -> str:
        """All URLs, with commas."""
        return ",".join(self.urls)

    def start(self) -> None:
        """Starts all servers; `joined` waits until JetStream serves."""
        for server in self.servers:
            server.start()

    def kill(self) -> None:
        """Ends all servers."""
        for server in self.servers:
            server.kill()

    async def joined(self, user: str, url: str = "", replicas: int = SERVERS, trust: Trust | None = None) -> Bus:
        """A connection of ``user`` to the server at ``url``, or to any."""
        bus = Bus(replicas=replicas)
        await bus.connect(url or self.url, "test", 20, find_login(str(self.users.path), user), trust)
        return bus

    def _server(self, place: int) -> Broker:
        """One server, whose configuration names the ports of routes of this machine."""
        own = self._folder / f"server-{place}"
        own.mkdir()
        for part in self.users.path.glob("*.conf"):
            (own / part.name).write_text(part.read_text())
        ports, text = iter(self._routes), (own / "cluster.conf").read_text()
        text = re.sub(rf"{re.escape(_HOST)}:{PORT}", lambda _: f"{_HOST}:{next(ports)}", text)
        (own / "cluster.conf").write_text(text.replace(f"0.0.0.0:{PORT}", f"{_HOST}:{self._routes[place]}"))
        settings = {"config": own / "users.conf", "name": f"s{place}", "store_dir": own / "store", "log": own / "log"}
        return Broker("--jetstream", *(part for key, value in settings.items() for part in (f"--{key}", str(value))))


@asynccontextmanager
async def cluster(folder: Path, files: Files | None = None) -> AsyncIterator[Cluster]:
    """A cluster that ends with the block."""
    made = Cluster(folder, files)
    try:
        await asyncio.to_thread(made.start)
        yield made
    finally:
        made.kill()


async def leader(bus: Bus, stream: str) -> int:
    """The place of the server that leads ``stream``, once the replicas on all other servers have what it has.

    While a stream is raised to more replicas, its leader names no replicas for a moment.
    """
    while True:
        known = (await bus.jetstream(10).stream_info(stream)).cluster
        current = [each for each in known.replicas or [] if each.current] if known else []
        if known and known.leader and len(current) == SERVERS - 1:
            return int(known.leader.removeprefix("s"))
        await asyncio.sleep(0.05)


async def patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Calls until servers have found each other, or have elected a leader."""
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
                return
            except Unavailable:
                await asyncio.sleep(0.05)
