"""The registry: every process announces itself over NATS, and notices within seconds when another falls silent."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_TICK_S = 0.2

_log = get_logger("registry")


def announce_subject(kind: str) -> str:
    """NATS subject of the announcements of processes of ``kind``; the broker may reserve it to them."""
    return f"outrider.registry.announce.{kind}"


def ask_subject(kind: str) -> str:
    """NATS subject on which a starting process of ``kind`` asks all processes to announce themselves."""
    return f"outrider.registry.ask.{kind}"


class State(StrEnum):
    """The state of a process; only ready and draining ones are members."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


class Member(msgspec.Struct, frozen=True):
    """A process of the mesh. ``address`` is host:port of its gRPC server; ``status`` what its kind announces."""

    kind: str
    instance: str
    address: str
    state: State
    status: dict[str, Any]


class _Announcement(msgspec.Struct, array_like=True, frozen=True):
    member: Member
    began: float


class _Record(msgspec.Struct):
    announcement: _Announcement
    silent_at: float


class Times(NamedTuple):
    """Times by which a registry decides which processes are there, in seconds.

    Attributes:
        announce_every_s: between announcements.
        silence_s: a member from which nothing is heard for so long is gone.
        deaf_s: where a process does not hear itself for so long, it or the broker is at fault: no silence counts.
        grace_s: time for members to be heard again, once the process hears itself again.
        news_s: time within which every member announces itself to a process that has just started.
    """

    announce_every_s: float = 0.7
    silence_s: float = 2.2
    deaf_s: float = 1.5
    grace_s: float = 3.0
    news_s: float = 2.2


TIMES = Times()
Members = list[Member]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Announcement)


class Registry:
    """The members of the mesh as this process knows them, and this process's own announcement.

    Silence counts only while this process hears its own announcements: neither a lost broker nor its own stalled loop
    makes members disappear.
    """

    def __init__(
        self,
        bus: Bus,
        kind: str,
        instance: str,
        status: Callable[[], dict[str, Any]] = dict,
        tasks: Tasks | None = None,
        times: Times = TIMES,
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
        self._heard_self = self._listens_since = time.monotonic()
        self._deaf = False
        self.changes = 0
        """How often a member has joined, left or changed."""

    async def start(self) -> None:
        """Listens, and asks all processes to announce themselves at once."""
        await self._bus.subscribe(announce_subject("*"), self._on_announce)
        await self._bus.subscribe(ask_subject("*"), lambda _: self._announce())
        self._listens_since = time.monotonic()
        self._loops = [
            self._tasks.spawn(self._announce_for_ever(), "registry announcements"),
            self._tasks.spawn(self._watch_for_ever(), "registry expiry"),
        ]
        self._bus.publish(ask_subject(self._kind), b"")

    @property
    def news_due_s(self) -> float:
        """Seconds until every member has had time to announce itself to this process; 0 from then on."""
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

    def _announce(self) -> None:
        member = Member(self._kind, self._instance, self.address, self._state, self._status())
        self._bus.publish(announce_subject(self._kind), _encoder.encode(_Announcement(member, self._began)))

    async def _announce_for_ever(self) -> None:
        while True:
            if self._bus.connected:
                self._announce()
            await asyncio.sleep(self._times.announce_every_s)

    def _on_announce(self, message: Message) -> None:
        try:
            announcement = _decoder.decode(message.data)
        except msgspec.MsgspecError:
            _log.warning("an announcement could not be read", bytes=len(message.data))
            return
        member = announcement.member
        if message.subject != announce_subject(member.kind):
            _log.warning("an announcement names another kind", subject=message.subject, kind=member.kind)
            return
        if member.instance == self._instance:
            self._heard_self = time.monotonic()
        key = (member.kind, member.instance)
        record = self._records.get(key)
        if record is not None and record.announcement.began > announcement.began:
            return
        if member.state in (State.READY, State.DRAINING):
            self._records[key] = _Record(announcement, time.monotonic() + self._times.silence_s)
        else:
            self._records.pop(key, None)
        self._notify(record.announcement.member if record else None, self._records.get(key))

    def _notify(self, before: Member | None, record: _Record | None) -> None:
        after = record.announcement.member if record else None
        if before == after:
            return
        self.changes += 1
        member = after or before
        assert member is not None
        if before is None or after is None or before.state != after.state:
            state = after.state if after else State.GONE
            _log.info("the mesh changed", kind=member.kind, member=member.instance, state=state)
        for callback in list(self._callbacks[member.kind]):
            callback(self.members(member.kind))

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._expire(time.monotonic())

    def _expire(self, now: float) -> None:
        if now - self._heard_self > self._times.deaf_s:
            self._deaf = True
            return
        if self._deaf:
            self._deaf = False
            for record in self._records.values():
                record.silent_at = now + self._times.grace_s
        for key in [key for key, record in self._records.items() if record.silent_at < now]:
            gone = self._records.pop(key)
            self._notify(gone.announcement.member, None)
