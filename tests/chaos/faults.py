"""Faults of the mesh, one at a time or two at once, in random order."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from outrider.cli.processes.child import Child
from outrider.cli.processes.keeper import ProcessKeeper

from tests.chaos.journeys import Journeys
from tests.chaos.mesh import ChaosMesh

STOPPED_S, FROZEN_S = 5.0, 6.5
SOON_S = 0.05
_AWAY_S = 0.2
_GRACE_S = 2.0
_WHOLE_S = 60.0
"""Seconds that a fault waits for verifiers to restart."""
_NEWS_S = 2.0
"""Seconds that a fault waits for a submission or for a returning reader."""


@dataclass(frozen=True)
class Fault:
    """A fault with its effects (``what``). Times are of `time.monotonic`; ``ended`` is the end of all its effects."""

    name: str
    began: float
    ended: float
    what: str


MakeFault = Callable[["FaultMaker"], Awaitable[list[str]]]


class FaultMaker:
    """Makes one fault after another; never kills the last verifier that serves, but may stop it for a while.

    The seed fixes the order of faults and all random choices; the victims also depend on the processes that live.
    """

    def __init__(self, mesh: ChaosMesh, journeys: Journeys, seed: int) -> None:
        self.mesh, self.journeys, self.random = mesh, journeys, random.Random(seed)
        self.made: list[Fault] = []
        self._stopped: list[Child] = []

    async def run(self, names: Sequence[str], every_s: float, most: float) -> None:
        """Makes up to ``most`` faults of the kinds ``names``, each round in another order.

        Between two faults a stream makes progress, so that processes can restart on a slow machine.
        """
        began = time.monotonic()
        names = [each for each in names if each not in SURROUNDINGS or each in self.mesh.surroundings.fallible]
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
        """Makes a fault and prints its time after ``since``; a double fault first waits until all verifiers serve."""
        if name in DOUBLE:
            await self._wait_for_verifiers()
        at = time.monotonic()
        what = ", ".join(await FAULTS[name](self))
        self.made.append(Fault(name, at, time.monotonic(), what))
        print(f"{at - since:6.1f} s: {name}: {what}", flush=True)

    async def _wait_for_verifiers(self) -> None:
        until = time.monotonic() + _WHOLE_S
        verifiers = sum(each.spec.kind == "verifier" for each in self.mesh.supervisor.keepers)
        while len(self.mesh.serving()) < min(2, verifiers) and time.monotonic() < until:
            await asyncio.sleep(0.05)

    def kill(self, *kinds: str) -> list[str]:
        """Kills a random process of each kind, but never the last verifier that serves."""
        victims = [self.random.choice(candidates) for kind in kinds if (candidates := self.mortal(kind))]
        return [self.mesh.kill(each) for each in victims]

    def mortal(self, kind: str = "") -> list[ProcessKeeper]:
        """Processes of ``kind``, or all processes, without the last verifier that serves."""
        serving = self.mesh.serving()
        spared = serving if len(serving) == 1 else []
        return [each for each in self.mesh.alive() if each.spec.kind == (kind or each.spec.kind) and each not in spared]

    async def stop(self, victim: ProcessKeeper) -> str:
        """Freezes a process for five seconds."""
        child = self.mesh.stop(victim)
        self._stopped.append(child)
        await asyncio.sleep(STOPPED_S)
        self._thaw()
        return f"{child.instance} stopped for {STOPPED_S:g} s"

    async def freeze(self, victims: Sequence[ProcessKeeper], *, broker: bool) -> list[str]:
        """Freezes processes together, and the broker where that is asked for, for longer than a registry waits."""
        self._stopped += [self.mesh.stop(each) for each in victims]
        names = [child.instance for child in self._stopped]
        if broker:
            self.mesh.broker.freeze()
        try:
            await asyncio.sleep(FROZEN_S)
        finally:
            self._thaw()
            self.mesh.broker.thaw()
        return [*names, *(["the broker"] if broker else []), f"frozen for {FROZEN_S:g} s"]

    async def without_broker(self, meanwhile: Callable[[], list[str]], away_s: float) -> list[str]:
        """Kills the broker, calls ``meanwhile`` after a part of ``away_s``, and restarts the broker."""
        self.mesh.broker.kill()
        try:
            await asyncio.sleep(away_s * self.random.random())
            effects = meanwhile()
            await asyncio.sleep(away_s)
        finally:
            await asyncio.to_thread(self.mesh.broker.start)
        return ["the broker", *effects]

    def _thaw(self) -> None:
        while self._stopped:
            self.mesh.thaw(self._stopped.pop())


async def _one(maker: FaultMaker) -> list[str]:
    alive = maker.mortal()
    index = maker.random.randrange(len(alive) + 1)
    if index == len(alive):
        return await maker.without_broker(list, _AWAY_S)
    return [maker.mesh.kill(alive[index])]


async def _gateway_and_verifier(maker: FaultMaker) -> list[str]:
    return maker.kill("gateway", "verifier")


async def _broker_and_verifier(maker: FaultMaker) -> list[str]:
    maker.mesh.broker.kill()
    killed = maker.kill("verifier")
    return [*(await maker.without_broker(list, _AWAY_S)), *killed]


async def _gateway_without_broker(maker: FaultMaker) -> list[str]:
    return await maker.without_broker(lambda: maker.kill("gateway"), maker.random.uniform(1, 3))


async def _verifier_stopped(maker: FaultMaker) -> list[str]:
    candidates = maker.mesh.serving()
    return [await maker.stop(maker.random.choice(candidates))] if candidates else []


async def _only_verifier_stopped(maker: FaultMaker) -> list[str]:
    """Kills one verifier and freezes the other: no verifier serves meanwhile."""
    killed = maker.kill("verifier")
    return [*killed, *(await _verifier_stopped(maker))]


async def _broker_frozen(maker: FaultMaker) -> list[str]:
    return await maker.freeze([], broker=True)


async def _several_frozen(maker: FaultMaker) -> list[str]:
    """Freezes all verifiers that serve, and the broker."""
    return await maker.freeze(maker.mesh.serving(), broker=True)


async def _packets_lost(maker: FaultMaker) -> list[str]:
    return await maker.mesh.surroundings.lose_packets()


async def _connections_broken(maker: FaultMaker) -> list[str]:
    return await maker.mesh.surroundings.break_connections()


async def _clock_ahead(maker: FaultMaker) -> list[str]:
    return await maker.mesh.surroundings.set_clock()


async def _disk_full(maker: FaultMaker) -> list[str]:
    return await maker.mesh.surroundings.fill_disk()


async def _at_submission(maker: FaultMaker) -> list[str]:
    kind, after_s = maker.random.choice(("gateway", "verifier")), maker.random.uniform(0, SOON_S)
    await _wait_for_next(maker.journeys.submitted)
    await asyncio.sleep(after_s)
    return [f"{after_s * 1e3:.0f} ms after a submission", *maker.kill(kind)]


async def _all_gateways(maker: FaultMaker) -> list[str]:
    """Kills one gateway, and all gateways when its readers return."""
    killed = maker.kill("gateway")
    await _wait_for_next(maker.journeys.returned)
    gateways = [each for each in maker.mesh.alive() if each.spec.kind == "gateway"]
    return [*killed, "then", *(maker.mesh.kill(each) for each in gateways)]


async def _rotation(maker: FaultMaker) -> list[str]:
    """Makes all certificates and seeds anew; the old seeds are valid for two seconds."""
    what = await asyncio.to_thread(maker.mesh.rotate, _GRACE_S)
    await asyncio.sleep(_GRACE_S)
    await asyncio.to_thread(maker.mesh.end_grace)
    return what


async def _wait_for_next(event: asyncio.Event) -> None:
    """Returns at the next ``event``, or after a time limit."""
    event.clear()
    try:
        await asyncio.wait_for(event.wait(), _NEWS_S)
    except TimeoutError:
        return


SINGLE = ("one process",)
ROTATION = ("rotation",)
FROZEN = ("the broker frozen", "verifiers and the broker frozen")
SURROUNDINGS: dict[str, MakeFault] = {
    "packets lost": _packets_lost,
    "connections broken": _connections_broken,
    "a gateway's clock": _clock_ahead,
    "the broker's disk": _disk_full,
}
"""Faults that `Surroundings` may be able to make."""
DOUBLE = (
    "gateway + verifier",
    "broker + verifier",
    "broker away + gateway",
    "verifier stopped",
    "only verifier stopped",
    "kill at submission",
    "gateways at reconnect",
)
_MAKERS: tuple[MakeFault, ...] = (
    _one,
    _gateway_and_verifier,
    _broker_and_verifier,
    _gateway_without_broker,
    _verifier_stopped,
    _only_verifier_stopped,
    _at_submission,
    _all_gateways,
    _rotation,
    _broker_frozen,
    _several_frozen,
)
FAULTS = dict(zip((*SINGLE, *DOUBLE, *ROTATION, *FROZEN), _MAKERS, strict=True)) | SURROUNDINGS
KINDS = {
    "single": SINGLE,
    "double": DOUBLE,
    "rotation": ROTATION,
    "frozen": FROZEN,
    "surroundings": tuple(SURROUNDINGS),
    "all": tuple(FAULTS),
}
