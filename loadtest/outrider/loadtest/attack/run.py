"""The attacks by name, and the run of one: victims stream before, during and after it."""

from __future__ import annotations

import asyncio
import time

from outrider.loadtest.attack import absent, bodies, deaths, doors, grammars, headers, stores
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.verdict import Attack, Log, Pace, Verdict, judge
from outrider.loadtest.attack.victims import Victims
from outrider.loadtest.attack.watch import watching

_KINDS = (bodies, headers, doors, absent, grammars, deaths, stores)

ATTACKS: dict[str, Attack] = {attack.name: attack for kind in _KINDS for attack in kind.ATTACKS}
"""All attacks by name; attacks that kill services come late, those on the broker's store last."""


async def undisturbed(victims: Victims, seconds: float) -> Pace:
    """The victims' pace over ``seconds`` without an attack."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    ended = await victims.settled(began)
    return Pace.of(victims.between(began, ended), began, ended)


async def make(mesh: Mesh, victims: Victims, attack: Attack, quiet: Pace) -> Verdict:
    """Runs ``attack``; returns the verdict when the victims are served again."""
    await mesh.ready()
    log = Log()
    async with watching(mesh) as processes:
        began = time.monotonic()
        try:
            async with asyncio.timeout(attack.most_s):
                await attack.run(mesh, log)
        except TimeoutError:
            log.wrong(f"the attack was not over after {attack.most_s:g} s")
        except Exception as error:
            log.wrong(f"the attack broke off: {error!r}")
        ended = time.monotonic()
        settled = await _settled(victims, ended, log)
    return judge(attack, log, processes, victims.between(began, settled), (began, ended, settled), quiet)


async def _settled(victims: Victims, ended: float, log: Log) -> float:
    try:
        return await victims.settled(ended)
    except TimeoutError:
        log.wrong("a victim was not served again")
        return time.monotonic()
