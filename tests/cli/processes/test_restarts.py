"""The order in which `outrider up` replaces the processes of a mesh, with processes that only sleep."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from outrider.cli.processes.child import Child, ProcessSpec
from outrider.cli.processes.keeper import ProcessKeeper
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import make_plan
from outrider.cli.processes.restarts import STOP_ORDER, RollingRestart

FOREVER = "import time; time.sleep(600)"
PATIENCE_S = dict.fromkeys(STOP_ORDER, 20.0)


class Events:
    """Records lines and what was ready; runs ``on_ready`` at every process that is ready."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ready_kinds: list[str] = []
        self.on_ready: Callable[[], None] = lambda: None

    def ready(self, child: Child, address: str) -> None:
        self.ready_kinds.append(child.spec.kind)
        self.on_ready()

    def died(self, child: Child, code: int, again_in_s: float) -> None: ...

    def report(self, line: str) -> None:
        self.lines.append(line)


class Sleepers:
    """Processes that sleep, one for each kind; each counts as ready once it runs, unless it does something else."""

    def __init__(self, log: Path) -> None:
        self.events = Events()
        self.services = [ProcessKeeper(self.spec(kind, log), self.events) for kind in ("gateway", "verifier")]
        self.restart = RollingRestart(self.services, PATIENCE_S, self.events)

    def spec(self, kind: str, log: Path) -> ProcessSpec:
        return ProcessSpec(kind, [sys.executable, "-c", FOREVER], log)

    @property
    def pids(self) -> list[int]:
        return [keeper.child.pid if keeper.child else 0 for keeper in self.services]

    async def ready(self) -> None:
        """Notes for ever that running processes are ready."""
        while True:
            for keeper in [*self.services, *filter(None, [self.restart.candidate])]:
                if keeper.child and keeper.child.pid and FOREVER in keeper.spec.command:
                    keeper.note_ready(keeper.child.instance, "")
            await asyncio.sleep(0.01)


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Sleepers]:
    async with sleepers(Sleepers(tmp_path / "log")) as made:
        yield made


@asynccontextmanager
async def sleepers(mesh: Sleepers) -> AsyncIterator[Sleepers]:
    ready = asyncio.create_task(mesh.ready())
    await asyncio.gather(*(keeper.was_ready.wait() for keeper in mesh.services))
    yield mesh
    ready.cancel()
    await asyncio.gather(*(keeper.stop(20) for keeper in mesh.services))


async def test_each_process_ends_once_its_successor_is_ready_and_callees_come_first(mesh: Sleepers) -> None:
    before, alive = mesh.pids, []
    mesh.events.on_ready = lambda: alive.append(all(map(_is_there, mesh.pids)))
    await mesh.restart.run()
    assert mesh.events.ready_kinds[2:] == ["verifier", "gateway"]
    assert alive == [True, True]
    assert len(mesh.pids) == 2
    assert not set(before) & set(mesh.pids)
    assert not any(map(_is_there, before))
    assert mesh.events.lines[-1] == "All services are new."


async def test_a_new_process_that_does_not_start_leaves_the_old_ones(mesh: Sleepers) -> None:
    before = mesh.pids
    mesh.services[1].spec.command[:] = [sys.executable, "-c", "import sys; sys.exit('no memory')"]
    await mesh.restart.run()
    assert mesh.pids == before
    assert "go on: no memory" in mesh.events.lines[-1]


async def test_a_process_that_cannot_run_beside_its_successor_ends_first(tmp_path: Path) -> None:
    class Alone(Sleepers):
        def spec(self, kind: str, log: Path) -> ProcessSpec:
            return ProcessSpec(kind, [sys.executable, "-c", FOREVER], log, alone="it has one bed")

    async with sleepers(Alone(tmp_path / "log")) as mesh:
        before, gone = set(mesh.pids), []
        mesh.events.on_ready = lambda: gone.append(len(before & set(mesh.pids)))
        await mesh.restart.run()
        assert gone == [1, 0]
        assert mesh.events.lines[0] == "verifier: the old process ends before the new one starts: it has one bed"


@pytest.mark.parametrize(
    ("setting", "kind", "reason"),
    [
        ("gateway.share_port=false", "gateway", "share_port"),
        ("verifier.device=cuda", "verifier", "memory of cuda"),
        ("tokenizer.metrics_port=9090", "tokenizer", "metrics_port"),
        ("kvcache.tiers=memory,disk", "kvcache", "pages"),
    ],
)
def test_the_plan_says_what_cannot_run_beside_its_successor(
    tmp_path: Path, setting: str, kind: str, reason: str
) -> None:
    counts = {"verifier": 1, "tokenizer": 1, "kvcache": 1, "gateway": 1}
    plan = make_plan(UpOptions(port=0, counts=counts, sets=[setting], log_dir=tmp_path))
    alone = {spec.kind: spec.alone for spec in plan.services}
    assert reason in alone.pop(kind)
    assert not any(alone.values())


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
