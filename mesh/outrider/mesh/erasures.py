"""Erasures of tenants: a mark in the broker's store says that all that is older has to go, and services say it is gone.

The mark is the only message. Services that run read it within a second; a service that was away reads it when it is
back; a service whose data outlives its process reads it before it serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

BUCKET = "outrider-erasures"
KEEP_S = 366 * 86400.0
"""Seconds for which a mark is kept: no stored page lives longer (`kvcache.ttl_s` is at most 365 days)."""

Erase = Callable[[str, float], Awaitable[Mapping[str, int]]]
"""Erases what a process holds of a tenant and is older than a time in seconds since 1970; says how many of what."""

_log = get_logger("erasures")


class Erasure(msgspec.Struct, frozen=True):
    """The mark, stored under the tenant's name: what is older than ``at``, in seconds since 1970, is erased."""

    at: float


class Erased(msgspec.Struct, array_like=True, frozen=True):
    """What a process erased of a tenant by the mark of a ``revision``; ``counts`` says how many of what."""

    kind: str
    instance: str
    tenant: str
    revision: int
    counts: dict[str, int]


encode_erased = msgspec.msgpack.Encoder().encode
decode_erased = msgspec.msgpack.Decoder(Erased).decode
_decode = msgspec.json.Decoder(Erasure).decode


def erased_subject(kind: str) -> str:
    """NATS subject on which processes of ``kind`` say what they erased; the broker may reserve it to them."""
    return f"outrider.erased.{kind}"


class Erasures:
    """Looks for marks every ``every_s`` seconds on behalf of one process, and calls ``erase`` once for each."""

    def __init__(self, bus: Bus, kind: str, instance: str, erase: Erase, every_s: float = 1.0) -> None:
        self._bus, self._kind, self._instance, self._erase = bus, kind, instance, erase
        self._every_s = every_s
        self._bucket = Bucket(bus, BUCKET)
        self._state: tuple[int, int] | None = None
        self._done: dict[str, int] = {}

    async def pass_over(self) -> None:
        """Takes the present marks for done: this process holds nothing yet. Raises `Unavailable`."""
        self._done = {tenant: revision for tenant, revision, _ in await self._new()}

    async def apply(self) -> None:
        """Erases what new marks say, and tells it; raises `Unavailable` if the marks, or the data, are out of reach."""
        state = await self._bucket.state()
        if state == self._state:
            return
        for tenant, revision, at in await self._new():
            counts = dict(await self._erase(tenant, at))
            self._done[tenant] = revision
            _log.info("a tenant was erased", revision=revision, **counts)
            erased = Erased(self._kind, self._instance, tenant, revision, counts)
            self._bus.publish(erased_subject(self._kind), encode_erased(erased))
        self._state = state

    async def follow(self) -> None:
        """Applies marks until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.apply()
            except Unavailable as error:
                _log.debug("erasures cannot be read or done", why=error.message)

    async def _new(self) -> list[tuple[str, int, float]]:
        """Tenant, revision and time of the marks that are not done."""
        entries = [(tenant, await self._bucket.get(tenant)) for tenant in await self._bucket.keys()]
        found = [(tenant, entry.revision, _decode(entry.value).at) for tenant, entry in entries if entry is not None]
        return [mark for mark in found if self._done.get(mark[0]) != mark[1]]
