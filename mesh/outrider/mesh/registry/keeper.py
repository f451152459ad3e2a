"""The keeper of a kind: the one process of a crowd that hears all announcements of the kind and passes them on.

Where every process hears every announcement, messages grow with the square of the processes. From `CROWD` processes of
a kind on, one of them becomes the keeper: it alone hears the announcements, and every `TICK_S` seconds it passes on
what it heard, in one message to whoever follows the kind. If an announcement is the same as before, only the instance
is passed on.
"""

from __future__ import annotations

import asyncio
import random
import time

import msgspec
from outrider.mesh.bus import Bus, Message, Subscription
from outrider.mesh.registry.members import (
    PATIENCE_S,
    State,
    announce_subject,
    ask_subject,
    batch_subject,
    encode,
    keeper_subject,
    read_announcement,
)
from outrider.mesh.telemetry import get_logger

CROWD = 16
"""Processes of a kind from which on there is a keeper; it stays until there are fewer than half as many."""
MOST_PASSED_ON = 256
"""Most announcements in one message."""
_SPREAD_S = 0.01
"""Mean seconds between two candidates: the others hear the first one before they try."""

_log = get_logger("registry")


class Presence(msgspec.Struct, array_like=True, frozen=True):
    """What a keeper tells its kind at every tick: its instance, and how many processes it knows; 0 of a candidate."""

    keeper: str
    processes: int


_decode_presence = msgspec.msgpack.Decoder(Presence).decode


class Keeper:
    """This process's part in finding the keeper of its ``kind``, and in being the keeper.

    Where no keeper is heard, processes wait for times by chance; the first one says that it is a candidate, and is the
    keeper once it hears that itself. Of two keepers, the one with the lower name stays.
    """

    def __init__(self, bus: Bus, kind: str, instance: str, silence_s: float) -> None:
        self._bus, self._kind, self._instance, self._silence_s = bus, kind, instance, silence_s
        self._keeper, self._processes = "", 0
        self._last = self._other_at = float("-inf")
        self._began = 0.0
        self._candidacy: asyncio.TimerHandle | None = None
        self._subscriptions: list[Subscription] = []
        self._heard: dict[str, float] = {}
        self._known: dict[str, tuple[float, bytes]] = {}
        self._fresh: dict[str, bytes | str] = {}

    @property
    def keeping(self) -> bool:
        """Whether this process is the keeper."""
        return bool(self._subscriptions)

    def note(self, instance: str) -> None:
        """Counts a process of the kind, which was heard directly."""
        self._heard[instance] = time.monotonic()

    async def read(self, message: Message) -> bool:
        """Reads what a keeper or a candidate tells; returns whether there is a new keeper, which has heard nobody."""
        presence, now = _decode_presence(message.data), time.monotonic()
        self._last = now
        if presence.keeper != self._instance:
            self._other_at = now
            if self.keeping and presence.processes and presence.keeper < self._instance:
                await self._stop()
        elif not self.keeping and now - self._other_at > PATIENCE_S:
            await self._begin()
        if not presence.processes:
            return False
        self._processes = presence.processes
        new, self._keeper = presence.keeper != self._keeper, presence.keeper
        return new

    async def tick(self, now: float) -> None:
        """Passes on what was heard, as the keeper; becomes a candidate, soon, where there is none."""
        if self.keeping:
            await self._keep(now)
        elif self._misses_a_keeper(now) and self._candidacy is None:
            delay_s = random.random() * self._count(now) * _SPREAD_S
            self._candidacy = asyncio.get_running_loop().call_later(delay_s, self._stand)

    def _misses_a_keeper(self, now: float) -> bool:
        return now - self._last > PATIENCE_S and self._count(now) >= CROWD

    def _stand(self) -> None:
        self._candidacy = None
        if self._misses_a_keeper(time.monotonic()) and self._bus.connected:
            self._bus.publish(keeper_subject(self._kind), encode(Presence(self._instance, 0)))

    def leave(self, announcement: bytes) -> None:
        """Passes on that this process is gone, and all that was heard, if this process is the keeper."""
        if self._candidacy is not None:
            self._candidacy.cancel()
        if self.keeping:
            self._fresh[self._instance] = announcement
            self._tell()

    def _count(self, now: float) -> int:
        self._heard = {instance: at for instance, at in self._heard.items() if at > now - self._silence_s}
        return max(len(self._heard), self._processes)

    async def _stop(self) -> None:
        self._known, self._fresh = {}, {}
        while self._subscriptions:
            await self._subscriptions.pop().unsubscribe()

    async def _begin(self) -> None:
        _log.info("this process keeps the announcements of its kind", kind=self._kind)
        self._began = time.monotonic()
        for subject, callback in (
            (announce_subject(self._kind), self._on_announce),
            (ask_subject("*"), self._on_ask),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, callback))
        self._tell()

    def _on_announce(self, message: Message) -> None:
        if (announcement := read_announcement(message.data, self._kind)) is None:
            return
        member = announcement.member
        _, known = self._known.get(member.instance, (0.0, b""))
        same = message.data == known and member.state in (State.READY, State.DRAINING)
        self._fresh[member.instance] = member.instance if same else message.data
        if member.state is State.GONE:
            self._known.pop(member.instance, None)
        else:
            self._known[member.instance] = time.monotonic(), message.data

    def _on_ask(self, _: Message) -> None:
        """Passes on all that is known with the next tick, once for all who ask until then."""
        self._fresh |= {instance: data for instance, (_, data) in self._known.items()}

    async def _keep(self, now: float) -> None:
        self._known = {name: each for name, each in self._known.items() if each[0] > now - self._silence_s}
        if len(self._known) < CROWD / 2 and now - self._began > 2 * self._silence_s:
            return await self._stop()
        self._tell()

    def _tell(self) -> None:
        if not self._bus.connected:
            return
        presence = Presence(self._instance, max(len(self._known), 1))
        self._bus.publish(keeper_subject(self._kind), encode(presence))
        fresh, self._fresh = list(self._fresh.values()), {}
        for start in range(0, max(len(fresh), 1), MOST_PASSED_ON):
            self._bus.publish(batch_subject(self._kind), encode(fresh[start : start + MOST_PASSED_ON]))
