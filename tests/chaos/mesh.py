"""A mesh of nine processes, which restart as under `outrider up`, and whose broker can be killed for a while."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
from outrider.cli.processes.child import Child, ProcessSpec
from outrider.cli.processes.keeper import ProcessKeeper
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import Plan, make_plan
from outrider.cli.processes.supervisor import Supervisor
from outrider.mesh.addresses import hold_port

from tests.broker import Broker

GATEWAYS = 3
COUNTS = {"gateway": 1, "verifier": 2, "tokenizer": 2, "kvcache": 0}


class DeathRecorder:
    """Records processes that ended without being killed by the test."""

    def __init__(self) -> None:
        self.killed: set[int] = set()
        self.unexpected: list[str] = []

    def ready(self, child: Child, address: str) -> None: ...

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        if child.pid not in self.killed:
            self.unexpected.append(f"{child.instance} ended by itself with {code}")


class ChaosMesh:
    """The running mesh: the gateways' ``urls``, its ``broker``, and the keepers of all other processes."""

    def __init__(self, supervisor: Supervisor, urls: list[str], broker: Broker, deaths: DeathRecorder) -> None:
        self.supervisor, self.urls, self.broker, self.deaths = supervisor, urls, broker, deaths
        self._stopped: set[int] = set()

    def alive(self) -> list[ProcessKeeper]:
        """Keepers whose process runs, ready or not, and was not just killed."""
        keepers, killed = self.supervisor.keepers, self.deaths.killed
        return [each for each in keepers if each.child and _runs(each.child.pid) and each.child.pid not in killed]

    def serving(self) -> list[ProcessKeeper]:
        """Verifiers that are ready and not stopped."""
        return [
            keeper
            for keeper in self.alive()
            if keeper.spec.kind == "verifier"
            and keeper.child
            and keeper.child.ready.is_set()
            and keeper.child.pid not in self._stopped
        ]

    def kill(self, victim: ProcessKeeper) -> str:
        """Kills a process, as a crash would; returns its name."""
        assert victim.child
        self.deaths.killed.add(victim.child.pid)
        victim.child.signal(signal.SIGKILL)
        return _name(victim)

    def stop(self, victim: ProcessKeeper) -> Child:
        """Freezes a process."""
        assert victim.child
        self._stopped.add(victim.child.pid)
        victim.child.signal(signal.SIGSTOP)
        return victim.child

    def thaw(self, child: Child) -> None:
        """Ends `stop`."""
        self._stopped.discard(child.pid)
        child.signal(signal.SIGCONT)

    async def ready(self) -> None:
        """Returns when every gateway is ready to complete."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
            for url in self.urls:
                while not await _answers(http, url):
                    await asyncio.sleep(0.1)


@asynccontextmanager
async def chaos_mesh(logs: Path) -> AsyncIterator[ChaosMesh]:
    """Runs 2 verifiers, a proposer, 2 tokenizers, 3 gateways and a NATS with JetStream inside the block."""
    broker = Broker("--jetstream", "--store_dir", str(logs / "nats"), "--log", str(logs / "nats.log"))
    await asyncio.to_thread(broker.start)
    deaths = DeathRecorder()
    plan, urls = _plan(logs, broker.url)
    supervisor = Supervisor(plan, deaths)
    try:
        await supervisor.start()
        mesh = ChaosMesh(supervisor, urls, broker, deaths)
        await mesh.ready()
        watch = asyncio.create_task(supervisor.run())
        try:
            yield mesh
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
    finally:
        await supervisor.stop()
        broker.kill()


def _plan(logs: Path, nats_url: str) -> tuple[Plan, list[str]]:
    plan = make_plan(UpOptions(host="127.0.0.1", port=0, counts=COUNTS, proposers=1, log_dir=logs, nats_url=nats_url))
    first = next(spec for spec in plan.services if spec.kind == "gateway")
    gateways, urls = [], []
    for number in range(1, GATEWAYS + 1):
        ports = hold_port(), hold_port()
        gateways.append(_gateway_spec(first, number, *ports))
        urls.append(f"http://127.0.0.1:{ports[0]}")
    others = [spec for spec in plan.services if spec is not first]
    return replace(plan, services=[*gateways, *others]), urls


def _gateway_spec(spec: ProcessSpec, number: int, port: int, grpc_port: int) -> ProcessSpec:
    arguments = [part for part in spec.command if not part.startswith(("--port=", "--grpc_port="))]
    command = [*arguments, f"--port={port}", f"--grpc_port={grpc_port}"]
    return replace(spec, command=command, log=spec.log.with_name(f"gateway-{number}.log"))


def _name(keeper: ProcessKeeper) -> str:
    assert keeper.child
    return f"{keeper.spec.log.stem} ({keeper.child.instance}{'' if keeper.child.ready.is_set() else ', not ready yet'})"


def _runs(pid: int) -> bool:
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def _answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False
