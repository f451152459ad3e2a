"""What is done to the mesh, one fault at a time or two at once, and the dice that choose."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from outrider.cli.processes.child import Child
from outrider.cli.processes.keeper import ProcessKeeper

from tests.chaos.journeys import Journeys
from tests.chaos.mesh import Nine

STOPPED_S = 5.0
SOON_S = 0.05
_AWAY_S = 0.2
_WHOLE_S = 60.0
"""How long a fault waits for verifiers to be started again."""
_NEWS_S = 2.0
"""How long a fault waits for a submission, or for a reader to come back."""


@dataclass(frozen=True)
class Fault:
    """A fault that was made. Times are of `time.monotonic`; ``ended`` is when all that it does was done."""

    name: str
    began: float
    ended: float
    what: str


Strike = Callable[["Dice"], Awaitable[list[str]]]


class Dice:
    """Makes one fault after the other; never kills the last verifier that serves, but may stop it for a while.

    Which faults come, in which order, after how long and to whom follows from the seed, and whom it meets from who
    lives then.
    """

    def __init__(self, mesh: Nine, journeys: Journeys, seed: int) -> None:
        self.mesh, self.journeys, self.random = mesh, journeys, random.Random(seed)
        self.made: list[Fault] = []
        self._stopped: list[Child] = []

    async def roll(self, names: Sequence[str], every_s: float, most: float) -> None:
        """Makes faults of these kinds in turns, each turn in another order, ``most`` in all.

        Some stream goes on between two of them, however slow the machine is, or nothing would ever be started again.
        """
        began = time.monotonic()
        try:
            while len(self.made) < most:
                for name in self.random.sample(list(names), len(names)):
                    await asyncio.sleep(every_s)
                    self.journeys.progressed.clear()
                    await self.journeys.progressed.wait()
                    await self.make(name, began)
        finally:
            self._thaw()

    async def make(self, name: str, since: float) -> None:
        """Makes a fault, and prints when, from ``since`` on; two at once wait a while until all verifiers serve."""
        if name != "one process":
            await self._whole()
        at = time.monotonic()
        what = ", ".join(await FAULTS[name](self))
        self.made.append(Fault(name, at, time.monotonic(), what))
        print(f"{at - since:6.1f} s: {name}: {what}", flush=True)

    async def _whole(self) -> None:
        until = time.monotonic() + _WHOLE_S
        while len(self.mesh.serving()) < 2 and time.monotonic() < until:
            await asyncio.sleep(0.05)

    def kill(self, *kinds: str) -> list[str]:
        """Kills a process of each kind, whichever; nobody where that is the last verifier."""
        chosen = [self.random.choice(found) for kind in kinds if (found := self.mortal(kind))]
        return [self.mesh.kill(each) for each in chosen]

    def mortal(self, kind: str = "") -> list[ProcessKeeper]:
        """Processes of ``kind``, or all, but the last verifier that serves."""
        serving = self.mesh.serving()
        spared = serving if len(serving) == 1 else []
        return [each for each in self.mesh.alive() if each.spec.kind == (kind or each.spec.kind) and each not in spared]

    async def stop(self, victim: ProcessKeeper) -> str:
        """Stops a process for five seconds."""
        child = self.mesh.stop(victim)
        self._stopped.append(child)
        await asyncio.sleep(STOPPED_S)
        self._thaw()
        return f"{child.instance} stopped for {STOPPED_S:g} s"

    async def without_broker(self, meanwhile: Callable[[], list[str]], away_s: float) -> list[str]:
        """Takes the broker away, does something after a part of ``away_s``, and brings the broker back."""
        self.mesh.broker.kill()
        try:
            await asyncio.sleep(away_s * self.random.random())
            told = meanwhile()
            await asyncio.sleep(away_s)
        finally:
            await asyncio.to_thread(self.mesh.broker.start)
        return ["the broker", *told]

    def _thaw(self) -> None:
        while self._stopped:
            self.mesh.go_on(self._stopped.pop())


async def _one(dice: Dice) -> list[str]:
    alive = dice.mortal()
    chosen = dice.random.randrange(len(alive) + 1)
    if chosen == len(alive):
        return await dice.without_broker(list, _AWAY_S)
    return [dice.mesh.kill(alive[chosen])]


async def _gateway_and_verifier(dice: Dice) -> list[str]:
    return dice.kill("gateway", "verifier")


async def _broker_and_verifier(dice: Dice) -> list[str]:
    dice.mesh.broker.kill()
    killed = dice.kill("verifier")
    return [*(await dice.without_broker(list, _AWAY_S)), *killed]


async def _gateway_without_broker(dice: Dice) -> list[str]:
    return await dice.without_broker(lambda: dice.kill("gateway"), dice.random.uniform(1, 3))


async def _verifier_stopped(dice: Dice) -> list[str]:
    found = dice.mesh.serving()
    return [await dice.stop(dice.random.choice(found))] if found else []


async def _only_verifier_stopped(dice: Dice) -> list[str]:
    """One dies, and the other stops: for as long as that lasts nobody serves."""
    killed = dice.kill("verifier")
    return [*killed, *(await _verifier_stopped(dice))]


async def _at_submission(dice: Dice) -> list[str]:
    kind, after_s = dice.random.choice(("gateway", "verifier")), dice.random.uniform(0, SOON_S)
    await _soon(dice.journeys.asked)
    await asyncio.sleep(after_s)
    return [f"{after_s * 1e3:.0f} ms after a submission", *dice.kill(kind)]


async def _all_gateways(dice: Dice) -> list[str]:
    """One dies, and all of them when its readers come back."""
    killed = dice.kill("gateway")
    await _soon(dice.journeys.returned)
    gateways = [each for each in dice.mesh.alive() if each.spec.kind == "gateway"]
    return [*killed, "then", *(dice.mesh.kill(each) for each in gateways)]


async def _soon(event: asyncio.Event) -> None:
    """Returns when ``event`` happens next, or does not for a while."""
    event.clear()
    try:
        await asyncio.wait_for(event.wait(), _NEWS_S)
    except TimeoutError:
        return


SINGLE = ("one process",)
DOUBLE = (
    "gateway + verifier",
    "broker + verifier",
    "broker away + gateway",
    "verifier stopped",
    "only verifier stopped",
    "kill at submission",
    "gateways at reconnect",
)
_STRIKES: tuple[Strike, ...] = (
    _one,
    _gateway_and_verifier,
    _broker_and_verifier,
    _gateway_without_broker,
    _verifier_stopped,
    _only_verifier_stopped,
    _at_submission,
    _all_gateways,
)
FAULTS: dict[str, Strike] = dict(zip((*SINGLE, *DOUBLE), _STRIKES, strict=True))
KINDS = {"single": SINGLE, "double": DOUBLE, "all": (*SINGLE, *DOUBLE)}
