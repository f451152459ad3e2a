"""Services of one mesh at one or two sites, each of which reaches servers of NATS of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from outrider.loadtest.meshes.site import Site
from outrider.loadtest.outages.servers import SERVERS, Servers
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry

_MODEL = "pocket"


class OutageMesh:
    """Running ``servers`` of NATS and ``sites``; ``urls`` are those of the gateways."""

    def __init__(self, servers: Servers, sites: Sequence[Site]) -> None:
        self.servers, self.sites = servers, sites
        self.urls: list[str] = []
        self._names: dict[Site, list[str]] = {site: [] for site in sites}

    async def start(self, site: Site, kind: str, **settings: object) -> None:
        """Starts a service at a site."""
        name = f"{kind}-{self.sites.index(site)}-{len(self._names[site])}"
        await site.start(kind, name, **settings)
        self._names[site].append(name)

    async def start_gateway(self, site: Site) -> None:
        """Starts a gateway, whose streams are kept by all servers."""
        port = hold_port()
        await self.start(site, "gateway", port=port, grpc_port=hold_port(), nats_replicas=SERVERS)
        self.urls.append(f"http://127.0.0.1:{port}")

    def kill(self, site: Site) -> None:
        """Kills all services of a site."""
        for name in self._names[site]:
            site.kill(name)


@asynccontextmanager
async def running(urls_of_sites: Sequence[Sequence[int]], gateways: int) -> AsyncIterator[OutageMesh]:
    """Runs a mesh with a site for each of ``urls_of_sites``: the places of the servers that its services are told.

    A site has ``gateways`` gateways, and two tokenizers and verifiers if it is the only one.
    """
    bus = Bus()
    with tempfile.TemporaryDirectory(prefix="outrider-outages-") as folder:
        servers = Servers(Path(folder))
        for place in range(SERVERS):
            servers.start(place)
        try:
            await bus.connect(",".join(servers.urls), "outages", wait_s=30)
            registry = Registry(bus, "loadtest", "outages")
            await registry.start()
            sites = [_site(servers, places, Path(folder), registry) for places in urls_of_sites]
            mesh = OutageMesh(servers, sites)
            try:
                await _start(mesh, gateways)
                yield mesh
            finally:
                await asyncio.gather(*(asyncio.to_thread(site.end) for site in sites))
                registry.leave()
        finally:
            await bus.close()
            servers.close()


def _site(servers: Servers, places: Sequence[int], folder: Path, registry: Registry) -> Site:
    return Site(",".join(servers.urls[place] for place in places), folder, registry, broker=0)


async def _start(mesh: OutageMesh, gateways: int) -> None:
    for site in mesh.sites:
        for _ in range(2 if len(mesh.sites) == 1 else 1):
            await mesh.start(site, "tokenizer", model=_MODEL)
            await mesh.start(site, "verifier", model=_MODEL, threads=1)
        for _ in range(gateways):
            await mesh.start_gateway(site)
