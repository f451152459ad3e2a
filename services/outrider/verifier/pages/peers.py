"""Instances that pages come from, and how each is reached: by gRPC, on this host by a Unix
socket, and its arena where it has one."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from outrider.mesh import rpc
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.telemetry import get_logger
from outrider.v1.kvcache_pb2_grpc import KvCacheStub

_REST_S = 2.0
"""How long an instance is left alone that failed: longer than the registry takes to notice that it is gone."""

_MOST_LATE = 3

_log = get_logger("caching")


class Arena:
    """Another process's memory, read-only. Data is copied out at once and checked by whoever asked for it."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._map = mapped

    @classmethod
    def open(cls, path: str, token: str) -> Arena | None:
        """The arena at ``path``; None where it is not on this host, or is not ours to read."""
        try:
            with Path(path).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            expected = bytes.fromhex(token)
        except (OSError, ValueError):
            return None
        return cls(mapped) if expected and mapped[: len(expected)] == expected else None

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from ``offset`` on; fewer where the arena ends."""
        return self._map[offset : offset + size]


@dataclass(slots=True)
class Peer:
    """An instance; ``arena`` is None where it is reached by gRPC alone, whose ``transport`` is tcp or unix."""

    member: Member
    stub: KvCacheStub
    arena: Arena | None
    transport: str
    rests_until: float = 0.0
    late: int = 0

    def answered(self) -> None:
        """Notes that it answers in time."""
        self.late = 0

    def delay(self) -> None:
        """Notes that it was too late for somebody; one that often is is left alone."""
        self.late += 1
        if self.late >= _MOST_LATE:
            self.fail("it does not answer in time")

    def fail(self, why: str) -> None:
        """Leaves it alone for a while."""
        self.late = 0
        self.rests_until = time.monotonic() + _REST_S
        told = {self.member.kind: self.member.instance}
        _log.warning("pages are not asked for here for a while", why=why, **told)


def reach(member: Member, sockets: bool, arena: Arena | None = None) -> Peer:
    """An instance as one that may be asked, by a Unix socket where ``sockets`` may be used and it has one here."""
    target = rpc.local_target(member.address, member.status.get("socket")) if sockets else member.address
    transport = "unix" if target != member.address else "tcp"
    told = transport if arena is None else "shared memory"
    _log.info("pages may be asked for", kind=member.kind, member=member.instance, transport=told)
    return Peer(member, KvCacheStub(rpc.channel(target)), arena, transport)


class Peers:
    """Follows the registry. Only in the event loop.

    Args:
        registry: where instances are found.
        shared: whether arenas are mapped.
        sockets: whether Unix sockets are used.
        changed: called when instances came or went.
    """

    def __init__(self, registry: Registry, shared: bool, sockets: bool, changed: Callable[[], None]) -> None:
        self._registry, self._shared, self._sockets, self._changed = registry, shared, sockets, changed
        self._peers: dict[str, Peer] = {}

    def start(self) -> None:
        """Meets those that are there and those that come."""
        self._registry.on_change("kvcache", self._meet)
        self._meet(self._registry.members("kvcache"))

    @property
    def instances(self) -> list[str]:
        """All that are ready, by the names that pages are shared out by, those at rest among them: their pages stay
        theirs."""
        return list(self._peers)

    def able(self, instance: str) -> Peer | None:
        """An instance that may be asked now."""
        peer = self._peers.get(instance)
        return None if peer is None or peer.rests_until > time.monotonic() else peer

    def _meet(self, members: list[Member]) -> None:
        ready = _by_shard(member for member in members if member.state is State.READY)
        gone = [name for name, peer in self._peers.items() if not _same(peer.member, ready.get(name))]
        for name in gone:
            del self._peers[name]
        new = ready.keys() - self._peers.keys()
        for name in new:
            self._peers[name] = self._reach(ready[name])
        if gone or new:
            self._changed()

    def _reach(self, member: Member) -> Peer:
        path, token = member.status.get("arena"), member.status.get("arena_token")
        told = self._shared and isinstance(path, str) and isinstance(token, str)
        return reach(member, self._sockets, Arena.open(str(path), str(token)) if told else None)


def _by_shard(members: Iterable[Member]) -> dict[str, Member]:
    """Members by the name of their pages, which may be older than they are; of two that claim one, the first has it."""
    named: dict[str, Member] = {}
    for member in members:
        shard = str(member.status.get("shard", member.instance))
        named[member.instance if shard in named else shard] = member
    return named


def _same(known: Member, told: Member | None) -> bool:
    """Whether it is the same process still."""
    if told is None:
        return False
    return (known.instance, known.address, known.status.get("arena")) == (
        told.instance,
        told.address,
        told.status.get("arena"),
    )
