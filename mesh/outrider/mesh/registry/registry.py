"""The members of the mesh as one process knows them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec
from outrider.mesh.bus import Bus, Callback, Message
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry.keeper import Keeper
from outrider.mesh.registry.members import (
    TICK_S,
    TIMES,
    Announcement,
    Member,
    Members,
    State,
    Times,
    announce_subject,
    announcement,
    ask_subject,
    batch_subject,
    decode_batch,
    keeper_subject,
    read_announcement,
)
from outrider.mesh.registry.relayed import Relayed
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_log = get_logger("registry")


class _Record(msgspec.Struct):
    announcement: Announcement
    silent_at: float


class Registry:
    """The members of the mesh as this process knows them, and this process's own announcement.

    Silence counts only while this process hears its own announcements, or the keeper of its kind: neither a lost broker
    nor its own stalled loop makes members disappear. Nor does the silence of a keeper.

    Args:
        follows: the kinds that this process has to know, heard from their keepers where there are any; if None, all
            kinds, heard directly.
    """

    def __init__(
        self,
        bus: Bus,
        kind: str,
        instance: str,
        status: Callable[[], dict[str, Any]] = dict,
        tasks: Tasks | None = None,
        times: Times = TIMES,
        follows: Collection[str] | None = None,
    ) -> None:
        self._bus, self._times = bus, times
        self._kind, self._instance = kind, instance
        self.address = ""
        self._status = status
        self._tasks = tasks or Tasks()
        self._state = State.STARTING
        self._loops: list[asyncio.Task[Any]] = []
        self._began = time.time()
        self._records: dict[tuple[str, str], _Record] = {}
        self._callbacks: defaultdict[str, list[Callable[[Members], None]]] = defaultdict(list)
        self._asked = self._heard_self = self._listens_since = time.monotonic()
        self._deaf = False
        self._keeper = Keeper(bus, kind, instance, times.silence_s)
        self._followed = {each: self._follow(each) for each in follows or ()}
        self._own = self._follow_own(follows)
        self.changes = 0
        """How often a member has joined, left or changed."""

    def _follow(self, kind: str) -> Relayed:
        direct = {announce_subject(kind): self._on_announce}
        heard, again = partial(self._on_batch, kind), partial(self._wait_for, kind)
        return Relayed(self._bus, self._tasks, batch_subject(kind), heard, direct, again)

    def _follow_own(self, follows: Collection[str] | None) -> Relayed:
        """Without a keeper, a process answers who asks, and hears its own kind: so it counts it."""
        direct: dict[str, Callback] = {ask_subject("*"): lambda _: self._announce()}
        if self._kind not in self._followed:
            own, every = (self._kind, self._on_own_kind), ("*", self._on_announce)
            kind, callback = every if follows is None else own
            direct[announce_subject(kind)] = callback
        again = partial(self._wait_for, self._kind)
        return Relayed(self._bus, self._tasks, keeper_subject(self._kind), self._on_keeper, direct, again)

    async def start(self) -> None:
        """Listens, and asks all processes to announce themselves at once."""
        for relayed in (self._own, *self._followed.values()):
            await relayed.start()
        self._listen_anew()
        self._bus.on_change(lambda connected: self._listen_anew() if connected else None)
        self._loops = [
            self._tasks.spawn(self._announce_for_ever(), "registry announcements"),
            self._tasks.spawn(self._watch_for_ever(), "registry expiry"),
        ]

    @property
    def news_due_s(self) -> float:
        """Seconds until every member has had time to announce itself since the broker came; 0 from then on."""
        return max(self._listens_since + self._times.news_s - time.monotonic(), 0.0)

    def set_state(self, state: State) -> None:
        """Announces this process's state at once."""
        self._state = state
        self._announce()

    @property
    def state(self) -> State:
        """This process's state."""
        return self._state

    def leave(self) -> None:
        """Announces that this process is gone; the announcements end."""
        for task in self._loops:
            task.cancel()
        if self._loops:
            self.set_state(State.GONE)
            self._keeper.leave(self._own_announcement())

    def members(self, kind: str) -> Members:
        """The ready and draining members of ``kind``, by instance; this process among them if it is one."""
        members = [r.announcement.member for (k, _), r in self._records.items() if k == kind]
        return sorted(members, key=lambda member: member.instance)

    def on_change(self, kind: str, callback: Callable[[Members], None]) -> Callable[[], None]:
        """Calls ``callback`` with all members of ``kind`` when one joins, leaves or changes.

        Returns a function that ends the calls.
        """
        self._callbacks[kind].append(callback)
        return lambda: self._callbacks[kind].remove(callback)

    async def wait_for(self, kind: str, predicate: Callable[[Members], bool], timeout: float) -> Members:
        """The members of ``kind`` once ``predicate`` holds of them; `Unavailable` after ``timeout`` s."""
        changed = asyncio.Event()
        forget = self.on_change(kind, lambda _: changed.set())
        try:
            async with asyncio.timeout(timeout):
                while not predicate(self.members(kind)):
                    await changed.wait()
                    changed.clear()
            return self.members(kind)
        except TimeoutError:
            raise Unavailable(f"no {kind} was found within {timeout:g} s") from None
        finally:
            forget()

    def _listen_anew(self) -> None:
        self._listens_since = time.monotonic()
        self._ask()

    def _ask(self) -> None:
        self._asked = time.monotonic()
        self._bus.publish(ask_subject(self._kind), b"")

    def _announce(self) -> None:
        self._bus.publish(announce_subject(self._kind), self._own_announcement())

    def _own_announcement(self) -> bytes:
        member = Member(self._kind, self._instance, self.address, self._state, self._status())
        return announcement(member, self._began)

    async def _announce_for_ever(self) -> None:
        while True:
            if self._bus.connected:
                self._announce()
            await asyncio.sleep(self._times.announce_every_s)

    async def _on_keeper(self, message: Message) -> None:
        self._heard_self = time.monotonic()
        if await self._keeper.read(message):
            self._announce()

    def _on_batch(self, kind: str, message: Message) -> None:
        batch = decode_batch(message.data)
        changed = [self._take(data, kind) for data in batch if isinstance(data, bytes)]
        self._notify([member for member in changed if member is not None])
        now = time.monotonic()
        records = [self._records.get((kind, name)) for name in batch if isinstance(name, str)]
        for record in records:
            if record is not None:
                record.silent_at = now + self._times.silence_s
        if None in records and now - self._asked > self._times.announce_every_s:
            self._ask()

    def _on_announce(self, message: Message) -> None:
        if (changed := self._take(message.data, message.subject.rpartition(".")[2])) is not None:
            self._notify([changed])

    def _on_own_kind(self, message: Message) -> None:
        self._read(message.data, self._kind)

    def _read(self, data: bytes, kind: str) -> Announcement | None:
        """An announcement of a process of ``kind``; None for anything else."""
        if (heard := read_announcement(data, kind)) is None:
            return None
        member = heard.member
        if kind == self._kind:
            self._keeper.note(member.instance)
        if member.instance == self._instance:
            self._heard_self = time.monotonic()
        return heard

    def _take(self, data: bytes, kind: str) -> Member | None:
        """Notes an announcement of a process of ``kind``; the member if it joined, left or changed."""
        if (heard := self._read(data, kind)) is None:
            return None
        member = heard.member
        key = (member.kind, member.instance)
        record = self._records.get(key)
        if record is not None and record.announcement.began > heard.began:
            return None
        if member.state in (State.READY, State.DRAINING):
            self._records[key] = _Record(heard, time.monotonic() + self._times.silence_s)
        else:
            self._records.pop(key, None)
        return self._compare(record.announcement.member if record else None, self._records.get(key))

    def _compare(self, before: Member | None, record: _Record | None) -> Member | None:
        """The member if it joined, left or changed."""
        after = record.announcement.member if record else None
        if before == after:
            return None
        self.changes += 1
        member = after or before
        assert member is not None
        if before is None or after is None or before.state != after.state:
            state = after.state if after else State.GONE
            _log.info("the mesh changed", kind=member.kind, member=member.instance, state=state)
        return member

    def _notify(self, changed: Members) -> None:
        """Tells of members that joined, left or changed, once for each kind."""
        for kind in sorted({member.kind for member in changed}):
            for callback in list(self._callbacks[kind]):
                callback(self.members(kind))

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for relayed in (self._own, *self._followed.values()):
                relayed.tick(now)
            await self._keeper.tick(now)
            self._expire(time.monotonic())

    def _wait_for(self, kind: str) -> None:
        """Gives the members of ``kind`` time to be heard again, after the silence of their keeper."""
        due = time.monotonic() + self._times.announce_every_s + 2 * TICK_S
        for (other, _), record in self._records.items():
            if other == kind:
                record.silent_at = max(record.silent_at, due)

    def _expire(self, now: float) -> None:
        if now - self._heard_self > self._times.deaf_s:
            self._deaf = True
            return
        if self._deaf:
            self._deaf = False
            for record in self._records.values():
                record.silent_at = now + self._times.grace_s
        silent = [key for key, record in self._records.items() if record.silent_at < now and self._hears(key[0], now)]
        gone = [self._compare(self._records.pop(key).announcement.member, None) for key in silent]
        self._notify([member for member in gone if member is not None])

    def _hears(self, kind: str, now: float) -> bool:
        relayed = self._followed.get(kind)
        return relayed is None or relayed.hears(now)
