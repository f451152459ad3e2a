"""The attacks by name, and the run of one: victims stream before, during and after it."""

from __future__ import annotations

import asyncio
import time

from outrider.loadtest.attack import absent, bodies, grammars, headers
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.verdict import Attack, AttackLog, Pace, Verdict, judge
from outrider.loadtest.attack.victims import Victims
from outrider.loadtest.attack.watch import watching

_KINDS = (bodies, headers, absent, grammars)

ATTACKS: dict[str, Attack] = {attack.name: attack for kind in _KINDS for attack in kind.ATTACKS}
"""All attacks by name."""


async def measure_undisturbed(victims: Victims, seconds: float) -> Pace:
    """The victims' pace over ``seconds`` without an attack."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    ended = await victims.wait_until_served(began)
    return Pace.of(victims.records_between(began, ended), began, ended)


async def run_attack(mesh: Mesh, victims: Victims, attack: Attack, quiet: Pace) -> Verdict:
    """Runs ``attack``; returns the verdict when the victims are served again."""
    await mesh.ready()
    log = AttackLog()
    async with watching(mesh) as processes:
        began = time.monotonic()
        try:
            async with asyncio.timeout(attack.most_s):
                await attack.run(mesh, log)
        except TimeoutError:
            log.problem(f"the attack was not over after {attack.most_s:g} s")
        except Exception as error:
            log.problem(f"the attack broke off: {error!r}")
        ended = time.monotonic()
        settled = await _wait_until_served(victims, ended, log)
    return judge(attack, log, processes, victims.records_between(began, settled), (began, ended, settled), quiet)


async def _wait_until_served(victims: Victims, ended: float, log: AttackLog) -> float:
    try:
        return await victims.wait_until_served(ended)
    except TimeoutError:
        log.problem("a victim was not served again")
        return time.monotonic()
