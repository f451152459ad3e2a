"""A mesh whose processes restart as under `outrider up`, and whose broker can be killed for a while."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.processes.child import Child, ProcessSpec
from outrider.cli.processes.keeper import ProcessKeeper
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import Plan, make_plan
from outrider.cli.processes.supervisor import Supervisor
from outrider.mesh.access import access_to
from outrider.mesh.addresses import hold_port
from outrider.mesh.lifecycle import CannotStart

from tests.broker import Broker
from tests.chaos.readers import Gateways
from tests.chaos.surroundings import Surroundings


class Layout(NamedTuple):
    """Numbers of processes, beside two tokenizers, a proposer, and a KV cache where there are three verifiers."""

    gateways: int = 3
    verifiers: int = 2

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of processes, but for further gateways."""
        return {"gateway": 1, "verifier": self.verifiers, "tokenizer": 2, "kvcache": int(self.verifiers > 2)}


USUAL = Layout()


class DeathRecorder:
    """Records processes that ended without being killed by the test."""

    def __init__(self) -> None:
        self.killed, self.silent = set[int](), set[str]()
        self.unexpected: list[str] = []

    def ready(self, child: Child, address: str) -> None: ...

    def report(self, line: str) -> None:
        """Notes tokenizers that are replaced since they were not heard: a broker that lost packets hears some late."""
        if line.endswith("and is ended"):
            self.silent.add(line.split()[0])
            print(f"  {line}", flush=True)

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        could_not_start = code == CannotStart.exit_code and not child.ready.is_set()  # a gateway with keys, no broker
        if child.pid not in self.killed and child.instance not in self.silent and not could_not_start:
            self.unexpected.append(f"{child.instance} ended by itself with {code}")


class ChaosMesh:
    """The running mesh: its ``gateways``, its ``broker``, and the keepers of all other processes."""

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        urls: list[str],
        broker: Broker,
        deaths: DeathRecorder,
        surroundings: Surroundings,
    ) -> None:
        self.supervisor, self.broker, self.deaths, self.surroundings = supervisor, broker, deaths, surroundings
        self.gateways, self._plan = Gateways(urls, access_to(plan.url)), plan
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

    def rotate(self, grace_s: float) -> list[str]:
        """Makes all certificates and all seeds of services anew; the old seeds end with `end_grace`."""
        if self._plan.secured:
            self._plan.secured.authority.rotate(datetime.now(UTC), every=True)
        self._bus.rotate(grace_s)
        self.broker.reload()
        return ["certificates and seeds"] if self._plan.secured else ["seeds"]

    def end_grace(self) -> None:
        """Has the broker refuse the old seeds."""
        self._bus.write()
        self.broker.reload()

    @property
    def _bus(self) -> BusDirectory:
        assert self._plan.broker.credentials
        return BusDirectory(self._plan.broker.credentials)

    async def ready(self) -> None:
        """Returns when every gateway is ready to complete."""
        async with httpx.AsyncClient(trust_env=False, timeout=5, verify=self.gateways.trusted) as http:
            for url in self.gateways.urls:
                while not await _answers(http, url):
                    await asyncio.sleep(0.1)


@asynccontextmanager
async def chaos_mesh(logs: Path, layout: Layout, *, secure: bool = False) -> AsyncIterator[ChaosMesh]:
    """Runs the processes of ``layout`` and a NATS with JetStream inside the block.

    With ``secure``, the mesh is that of `outrider up --secure`.
    """
    surroundings = Surroundings(logs)
    plan, ports = _plan(logs, layout, secure)
    surroundings.client_ports, surroundings.broker_port = ports, int(plan.broker.url.rpartition(":")[2])
    first, *others = plan.services
    first = replace(first, environment={**first.environment, **surroundings.environment})
    with surroundings.disk():
        async with _running(replace(plan, services=[first, *others]), ports, surroundings) as mesh:
            yield mesh


@asynccontextmanager
async def _running(plan: Plan, ports: list[int], surroundings: Surroundings) -> AsyncIterator[ChaosMesh]:
    broker = _broker(plan)
    await asyncio.to_thread(broker.start)
    deaths = DeathRecorder()
    supervisor = Supervisor(replace(plan, broker=replace(plan.broker, process=None)), deaths)
    try:
        await supervisor.start()
        urls = [f"{plan.scheme}://127.0.0.1:{port}" for port in ports]
        mesh = ChaosMesh(supervisor, plan, urls, broker, deaths, surroundings)
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


def _broker(plan: Plan) -> Broker:
    """The broker of a plan, for the test to kill and start."""
    assert plan.broker.process
    command = plan.broker.process.command
    broker = Broker(*command[1:], "--log", str(plan.broker.process.log))
    broker.port = int(plan.broker.url.rpartition(":")[2])
    return broker


def _plan(logs: Path, layout: Layout, secure: bool) -> tuple[Plan, list[int]]:
    """The plan, gateways first, and the gateways' ports of HTTP."""
    options = UpOptions(host="127.0.0.1", port=0, counts=layout.counts, proposers=1, log_dir=logs, secure=secure)
    plan = make_plan(options)
    first = next(spec for spec in plan.services if spec.kind == "gateway")
    ports = [plan.port, *(hold_port() for _ in range(1, layout.gateways))]
    gateways = [_gateway_spec(first, number, port, hold_port()) for number, port in enumerate(ports, 1)]
    others = [spec for spec in plan.services if spec is not first]
    return replace(plan, services=[*gateways, *others]), ports


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
