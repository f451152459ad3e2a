"""The cheap attacks, on a mesh of real processes. Waits of other clients are printed, not asserted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from outrider.loadtest.attack import output, victims
from outrider.loadtest.attack.mesh import VICTIM, Mesh, running
from outrider.loadtest.attack.run import ATTACKS, measure_undisturbed, run_attack
from outrider.loadtest.attack.verdict import Attack, AttackLog, Verdict

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def mesh(loop: asyncio.AbstractEventLoop) -> Iterator[Mesh]:
    mesh = running()
    yield loop.run_until_complete(mesh.__aenter__())
    loop.run_until_complete(mesh.__aexit__(None, None, None))


async def made(mesh: Mesh, attack: Attack) -> Verdict:
    """The verdict, printed as `make attack` does."""
    async with victims.running([mesh.url], mesh.keys[VICTIM]) as watched:
        verdict = await run_attack(mesh, watched, attack, await measure_undisturbed(watched, 1.0))
    print(output.line(verdict), flush=True)
    return verdict


@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS.values() if attack.cheap])
def test_others_notice_nothing_of(name: str, mesh: Mesh, loop: asyncio.AbstractEventLoop) -> None:
    verdict = loop.run_until_complete(made(mesh, ATTACKS[name]))
    assert not verdict.wrong, output.line(verdict)
    assert verdict.outcomes["whole"] >= victims.CLIENTS


def test_the_verdict_names_a_killed_verifier(mesh: Mesh, loop: asyncio.AbstractEventLoop) -> None:
    async def murder(mesh: Mesh, log: AttackLog) -> None:
        os.kill(mesh.pids("verifier")[0], signal.SIGKILL)

    verdict = loop.run_until_complete(made(mesh, Attack("murder", "A verifier is killed.", murder)))
    assert "1 verifier died" in verdict.wrong
    assert not set(verdict.outcomes) - {"whole"}
    assert verdict.processes.before["verifier"] != verdict.processes.after["verifier"]
