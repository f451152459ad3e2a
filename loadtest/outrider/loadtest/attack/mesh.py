"""The attacked mesh: two gateways that ask for keys, and two verifiers; `outrider up` restarts what dies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import msgspec
from outrider.measure import local_mesh
from outrider.measure.local_mesh import LocalMesh
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenants import BUCKET, Tenant, key_entry, new_key, tenant_entry

VICTIM, ATTACKER = "victim", "attacker"
_VERIFIERS = 2
_SETTINGS = {"gateway.auth": "keys", "verifier.threads": "1"}
_READY_S = 180.0
_ANSWERS = 16
"""Answers in a row, after which both gateways know a key: a new connection reaches either of them."""


class Mesh:
    """A running mesh: ``url`` of its gateways, ``keys`` by tenant, and its processes."""

    def __init__(self, local: LocalMesh, broker: int, keys: Mapping[str, str]) -> None:
        self.url, self.keys = local.url, keys
        self._local, self._broker = local, broker

    def pids(self, kind: str) -> list[int]:
        """Ids of running processes of ``kind``, or of ``nats``."""
        return [self._broker] if kind == "nats" else self._local.pids(kind)

    async def ready(self) -> None:
        """Returns when all processes run and both gateways know all keys; `TimeoutError` after minutes."""
        async with asyncio.timeout(_READY_S):
            for key in self.keys.values():
                answers = 0
                while answers < _ANSWERS or len(self.pids("verifier")) < _VERIFIERS:
                    answers = answers + 1 if await self._knows(key) else 0

    async def _knows(self, key: str) -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
                headers = {"authorization": f"Bearer {key}"}
                known = (await http.get(f"{self.url}/v1/models", headers=headers)).is_success
        except httpx.TransportError:
            known = False
        await asyncio.sleep(0 if known else 0.1)
        return known


@asynccontextmanager
async def running() -> AsyncIterator[Mesh]:
    """Runs a mesh with two tenants inside the block."""
    with _broker() as (url, pid):
        keys = {name: await _store(url, name) for name in (VICTIM, ATTACKER)}
        more = ("--gateways", "2", "--nats-url", url)
        with local_mesh.running(_SETTINGS, _VERIFIERS, proposers=0, more=more) as local:
            mesh = Mesh(local, pid, keys)
            await mesh.ready()
            yield mesh


@contextmanager
def _broker() -> Iterator[tuple[str, int]]:
    """Runs a broker inside the block that lets everybody in; yields its URL and its process id."""
    port, server = hold_port(), Path(sys.executable).parent / "nats-server"
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        options = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder, "-l", f"{folder}/log"]
        broker = subprocess.Popen([server, *options])
        try:
            yield f"nats://127.0.0.1:{port}", broker.pid
        finally:
            broker.terminate()
            broker.wait()


async def _store(url: str, name: str) -> str:
    """Stores a tenant without limits at the NATS server ``url``; returns its key."""
    bus = Bus()
    await bus.connect(url, "loadtest", wait_s=10)
    bucket, (key, secret) = Bucket(bus, BUCKET), new_key(name, time.time())
    await bucket.open()
    await bucket.put(tenant_entry(name), msgspec.json.encode(Tenant(name=name, created=time.time())))
    await bucket.put(key_entry(key.id), msgspec.json.encode(key))
    await bus.close()
    return secret
