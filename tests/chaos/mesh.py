"""A mesh of nine processes, kept alive as `outrider up` does, and the dice that kill them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from outrider.cli.child import Child, Spec
from outrider.cli.keeper import Keeper
from outrider.cli.options import UpOptions
from outrider.cli.plan import Plan, make_plan
from outrider.cli.supervisor import Supervisor
from outrider.mesh.addresses import hold_port

GATEWAYS = 3
COUNTS = {"gateway": 1, "verifier": 2, "tokenizer": 2, "kvcache": 0}


class Quiet:
    """Hears what becomes of processes, and says nothing."""

    def ready(self, child: Child, address: str) -> None: ...

    def died(self, child: Child, code: int, again_in_s: float) -> None: ...


class Nine:
    """The running mesh: the gateways' ``urls``, and the keepers of all its processes."""

    def __init__(self, supervisor: Supervisor, urls: list[str]) -> None:
        self.supervisor, self.urls = supervisor, urls

    def alive(self) -> list[Keeper]:
        """Those whose process runs, ready or not."""
        return [keeper for keeper in self.supervisor.keepers if keeper.child and _runs(keeper.child.pid)]

    async def ready(self) -> None:
        """Returns when every gateway says that a completion would succeed."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
            for url in self.urls:
                while not await _answers(http, url):
                    await asyncio.sleep(0.1)


class Dice:
    """Kills a process at a time, whichever; never the last verifier that is ready."""

    def __init__(self, mesh: Nine, seed: int) -> None:
        self._mesh, self._random = mesh, random.Random(seed)
        self.killed: list[str] = []

    async def roll(self, every_s: float) -> None:
        """Kills one process every so many seconds, for ever."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(every_s)
            self._kill(self._random.choice(self._mortal()), time.monotonic() - began)

    def _mortal(self) -> list[Keeper]:
        alive = self._mesh.alive()
        serving = [each for each in alive if each.spec.kind == "verifier" and each.child and each.child.ready.is_set()]
        return [each for each in alive if serving != [each]]

    def _kill(self, victim: Keeper, at: float) -> None:
        assert victim.child
        state = "" if victim.child.ready.is_set() else ", not ready yet"
        print(f"{at:6.1f} s: kill -9 {victim.spec.log.stem} ({victim.child.instance}{state})", flush=True)
        os.kill(victim.child.pid, signal.SIGKILL)
        self.killed.append(victim.spec.kind)


@asynccontextmanager
async def nine(logs: Path) -> AsyncIterator[Nine]:
    """2 verifiers, a proposer, 2 tokenizers, 3 gateways and a NATS that stores on disk."""
    plan, urls = _plan(logs)
    supervisor = Supervisor(plan, Quiet())
    try:
        await supervisor.start()
        mesh = Nine(supervisor, urls)
        await mesh.ready()
        watch = asyncio.create_task(supervisor.run())
        yield mesh
        watch.cancel()
    finally:
        await supervisor.stop()


def _plan(logs: Path) -> tuple[Plan, list[str]]:
    plan = make_plan(UpOptions(host="127.0.0.1", port=0, counts=COUNTS, proposers=1, log_dir=logs))
    first = next(spec for spec in plan.services if spec.kind == "gateway")
    gateways, urls = [], []
    for number in range(1, GATEWAYS + 1):
        ports = hold_port(), hold_port()
        gateways.append(_moved(first, number, *ports))
        urls.append(f"http://127.0.0.1:{ports[0]}")
    others = [spec for spec in plan.services if spec is not first]
    return replace(plan, services=[*gateways, *others]), urls


def _moved(spec: Spec, number: int, port: int, grpc_port: int) -> Spec:
    kept = [part for part in spec.command if not part.startswith(("--port=", "--grpc_port="))]
    command = [*kept, f"--port={port}", f"--grpc_port={grpc_port}"]
    return replace(spec, command=command, log=spec.log.with_name(f"gateway-{number}.log"))


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
