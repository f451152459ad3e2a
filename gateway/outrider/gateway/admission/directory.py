"""Tenants and keys as they are stored now, or were a moment ago."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

import msgspec
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import Unavailable
from outrider.wire.tenants import BUCKET, Key, Tenant, key_entry, tenant_entry

FRESH_S = 1.0
"""For so long what was read is taken for true: a key that is revoked is refused after at most this."""
_MOST = 100_000

T = TypeVar("T")


class _Known(msgspec.Struct, Generic[T]):
    """What was read; ``asked`` and ``heard`` are when the broker was asked last and answered last."""

    value: T | None
    asked: float
    heard: float


class Directory:
    """Reads tenants and keys out of the mesh's key-value store.

    While the broker is away, what was read in the last ``stale_s`` seconds holds.
    """

    def __init__(self, bus: Bus, stale_s: float) -> None:
        self._bucket = Bucket(bus, BUCKET)
        self._keys = _Memory(self._bucket, msgspec.json.Decoder(Key), stale_s)
        self._tenants = _Memory(self._bucket, msgspec.json.Decoder(Tenant), stale_s)

    async def start(self) -> None:
        """Makes the store where there is none; `Unavailable` when the broker keeps none."""
        await self._bucket.open()

    async def key(self, id_: str) -> Key | None:
        """The key with this id, if there is one; `Unavailable` when nobody can tell."""
        return await self._keys.get(key_entry(id_))

    async def tenant(self, name: str) -> Tenant | None:
        """The tenant of this name, as `key`."""
        return await self._tenants.get(tenant_entry(name))


class _Memory(Generic[T]):
    def __init__(self, bucket: Bucket, decoder: msgspec.json.Decoder[T], stale_s: float) -> None:
        self._bucket, self._decode, self._stale_s = bucket, decoder.decode, stale_s
        self._known: dict[str, _Known[T]] = {}
        self._reading: dict[str, asyncio.Task[T | None]] = {}

    async def get(self, entry: str) -> T | None:
        """Reads at most once in `FRESH_S`, however many ask."""
        known = self._known.get(entry)
        if known is not None and time.monotonic() - known.asked < FRESH_S:
            return known.value
        reading = self._reading.get(entry)
        if reading is None:
            reading = self._reading[entry] = asyncio.create_task(self._read(entry))
            reading.add_done_callback(lambda _: self._reading.pop(entry))
        return await asyncio.shield(reading)

    async def _read(self, entry: str) -> T | None:
        try:
            found = await self._bucket.get(entry)
        except Unavailable:
            return self._remembered(entry)
        now = time.monotonic()
        value = self._decode(found.value) if found is not None else None
        self._known.pop(entry, None)
        if value is not None:
            self._known[entry] = _Known(value, now, now)
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return value

    def _remembered(self, entry: str) -> T | None:
        known, now = self._known.get(entry), time.monotonic()
        if known is None or now - known.heard > self._stale_s:
            raise Unavailable("keys cannot be checked just now: their store does not answer", retry_after=1.0)
        known.asked = now
        return known.value
