"""KV caches and verifiers that pages come from, reached by TCP, or on this host by Unix socket and shared memory."""

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
from outrider.wire.residency import Residency, may_hold

_PAUSE_S = 2.0
"""Seconds for which a failed instance is not asked: longer than the registry takes to notice that it is gone."""

_MOST_LATE = 3

_log = get_logger("caching")


class Arena:
    """Another process's memory, mapped read-only. Data is copied out at once; the caller checks it."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._map = mapped

    @classmethod
    def open(cls, path: str, token: str) -> Arena | None:
        """The arena at ``path``; None if it is not on this host, cannot be read, or does not begin with ``token``."""
        try:
            with Path(path).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            expected = bytes.fromhex(token)
        except (OSError, ValueError):
            return None
        return cls(mapped) if expected and mapped[: len(expected)] == expected else None

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer at the end of the arena."""
        return self._map[offset : offset + size]


@dataclass(slots=True)
class Peer:
    """An instance. ``arena`` is None if pages come by gRPC only; ``transport`` of gRPC is ``tcp`` or ``unix``."""

    member: Member
    target: str
    arena: Arena | None
    transport: str
    paused_until: float = 0.0
    late: int = 0

    @property
    def stub(self) -> KvCacheStub:
        """The methods, on the present channel."""
        return rpc.stub(KvCacheStub, self.target, self.member.kind)

    def answered(self) -> None:
        """Notes an answer in time."""
        self.late = 0

    def delay(self) -> None:
        """Notes a late answer; after `_MOST_LATE` late answers in a row the instance is paused."""
        self.late += 1
        if self.late >= _MOST_LATE:
            self.fail("it does not answer in time")

    def fail(self, why: str) -> None:
        """Pauses the instance for `_PAUSE_S` seconds."""
        self.late = 0
        self.paused_until = time.monotonic() + _PAUSE_S
        fields = {self.member.kind: self.member.instance}
        _log.warning("no pages are fetched from an instance for a while", why=why, **fields)


def reach(member: Member, sockets: bool, arena: Arena | None = None) -> Peer:
    """How to reach an instance: by Unix socket if ``sockets`` is true and the instance has one on this host."""
    target = rpc.local_target(member.address, member.status.get("socket")) if sockets else member.address
    transport = "unix" if target != member.address else "tcp"
    route = transport if arena is None else "shared memory"
    _log.info("pages can be fetched from an instance", kind=member.kind, member=member.instance, transport=route)
    return Peer(member, target, arena, transport)


class Peers:
    """The KV caches in the registry. Only in the event loop.

    Args:
        registry: registry of KV caches.
        shared: whether arenas are mapped.
        sockets: whether Unix sockets are used.
        changed: called when KV caches came or went.
    """

    def __init__(self, registry: Registry, shared: bool, sockets: bool, changed: Callable[[], None]) -> None:
        self._registry, self._shared, self._sockets, self._changed = registry, shared, sockets, changed
        self._peers: dict[str, Peer] = {}

    def start(self) -> None:
        """Starts to follow the registry."""
        self._registry.on_change("kvcache", self._on_members)
        self._on_members(self._registry.members("kvcache"))

    @property
    def instances(self) -> list[str]:
        """Shard names of all ready KV caches. Paused ones are included: they keep their share of the pages."""
        return list(self._peers)

    def within(self, residency: Residency) -> list[str]:
        """Those of `instances` that may hold data of a ``residency``."""
        return [name for name, peer in self._peers.items() if may_hold(peer.member.status, residency)]

    def available(self, instance: str) -> Peer | None:
        """The KV cache of a shard; None if it is unknown or paused."""
        peer = self._peers.get(instance)
        return None if peer is None or peer.paused_until > time.monotonic() else peer

    def _on_members(self, members: list[Member]) -> None:
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
        shared = self._shared and isinstance(path, str) and isinstance(token, str)
        return reach(member, self._sockets, Arena.open(str(path), str(token)) if shared else None)


def _by_shard(members: Iterable[Member]) -> dict[str, Member]:
    """Members by shard, which may outlive a process. If two members claim a shard, the first one gets it."""
    shards: dict[str, Member] = {}
    for member in members:
        shard = str(member.status.get("shard", member.instance))
        shards[member.instance if shard in shards else shard] = member
    return shards


def _same(before: Member, now: Member | None) -> bool:
    """Whether both are the same process."""
    if now is None:
        return False
    return (before.instance, before.address, before.status.get("arena")) == (
        now.instance,
        now.address,
        now.status.get("arena"),
    )
