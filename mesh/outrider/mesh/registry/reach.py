"""Which members at other places a process cannot connect to.

A process that calls others announces who these are: so `outrider up` at the other place learns that its services
announce an address which is of no use elsewhere. Members of the caller's own place are left out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from outrider.mesh.addresses import split
from outrider.mesh.registry.members import Member, Members
from outrider.mesh.registry.registry import Registry
from outrider.mesh.tasks import Tasks, within
from outrider.mesh.telemetry import get_logger

PLACE, UNREACHABLE = "place", "unreachable"
"""Keys in the status of a member: where it is, and the instances that it cannot connect to."""
CONNECT_S = 2.5
"""Seconds that a connection may take: more than the silence after which a dead member is none."""
AGAIN_S = 10.0
_RETRY_S = 0.5
_BOOT, _NETWORK = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/net"
_log = get_logger("registry")


@cache
def place() -> str:
    """A name of this host and network namespace: its processes reach each other at 127.0.0.1. Empty if unknown."""
    with suppress(OSError):
        return sha256(f"{_BOOT.read_text()}{os.readlink(_NETWORK)}".encode()).hexdigest()[:12]
    return ""


def complaint(callers: Iterable[Member], members: Collection[Member]) -> str:
    """A sentence on the first of ``members`` that one of ``callers`` cannot connect to; empty without one."""
    for caller in callers:
        lost = caller.status.get(UNREACHABLE, ())
        for member in members:
            if member.instance in lost:
                what = f"{caller.instance} on another host cannot connect to {member.instance} at {member.address}"
                return f"{what}: {_advice(member.address)}"
    return ""


class Reach:
    """Connects to members of ``kinds`` at other places as they come, and again while that fails.

    Args:
        here: this process's place.
        again_s: seconds until a connection that failed is tried again.
    """

    def __init__(
        self, registry: Registry, kinds: Collection[str], tasks: Tasks, here: str = "", again_s: float = AGAIN_S
    ) -> None:
        self._registry, self._kinds, self._tasks = registry, kinds, tasks
        self._here, self._again_s = here or place(), again_s
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self._lost: set[str] = set()

    @property
    def status(self) -> dict[str, Any]:
        """What the process announces of this."""
        return {PLACE: self._here} | ({UNREACHABLE: sorted(self._lost)} if self._lost else {})

    def start(self) -> None:
        """Follows the members."""
        for kind in self._kinds:
            self._registry.on_change(kind, partial(self._look, kind))

    def _look(self, kind: str, members: Members) -> None:
        known, self._known[kind] = self._known[kind], {member.instance for member in members}
        for member in members:
            if member.instance not in known and member.status.get(PLACE, self._here) != self._here:
                self._tasks.spawn(self._try(member), f"reach {member.instance}")

    async def _try(self, member: Member) -> None:
        while not await _connects(member) and member.instance in self._known[member.kind]:
            if member.instance not in self._lost:
                self._lost.add(member.instance)
                name, address = member.instance, member.address
                _log.warning("a member cannot be reached", member=name, address=address, advice=_advice(address))
            await asyncio.sleep(self._again_s)
        self._lost.discard(member.instance)


async def _connects(member: Member) -> bool:
    """Whether a connection succeeds. At an address of the loopback device, it would end at a process of this place."""
    if _is_loopback(member.address):
        return False
    try:
        await within(CONNECT_S, _connect(*split(member.address)))
    except (TimeoutError, ValueError, OverflowError):  # too late, or no address
        return False
    return True


async def _connect(host: str, port: int) -> None:
    """Connects and leaves again; tries for ever. A connection of gRPC would stay, even if nobody calls the member."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(_RETRY_S)


def _advice(address: str) -> str:
    if _is_loopback(address):
        return "set mesh.host to an address of its machine that other hosts reach"
    return "set mesh.advertise to a host or address by which other hosts reach its machine, or open its ports to them"


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
