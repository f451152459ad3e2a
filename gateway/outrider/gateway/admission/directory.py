"""Reads tenants and keys from the mesh's key-value store, through a short-lived cache."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import Unavailable
from outrider.wire.tenants import BUCKET, Key, Tenant, key_entry, tenant_entry

FRESH_S = 1.0
"""Seconds that a cached entry is valid: a revoked key is refused after this time at the latest."""
_MOST = 100_000
_MOST_ABSENT = 10_000

T = TypeVar("T")


class _Entry(msgspec.Struct, Generic[T]):
    """A cached value, None for an absent one.

    ``checked`` is when the broker was last asked for it, ``read`` when it last answered.
    """

    value: T | None
    checked: float
    read: float


class Directory:
    """Tenants and keys. While the broker is away, entries read in the last ``stale_s`` seconds remain valid."""

    def __init__(self, bus: Bus, stale_s: float) -> None:
        self._bucket = Bucket(bus, BUCKET)
        self._keys = _Cache(self._bucket, msgspec.json.Decoder(Key), stale_s)
        self._tenants = _Cache(self._bucket, msgspec.json.Decoder(Tenant), stale_s)

    async def start(self) -> None:
        """Creates the store if it is missing; raises `Unavailable` if the broker keeps none."""
        await self._bucket.open()

    async def key(self, id_: str) -> Key | None:
        """The key with this id, or None; raises `Unavailable` if the broker is away and no entry is valid."""
        return await self._keys.get(key_entry(id_))

    async def tenant(self, name: str) -> Tenant | None:
        """The tenant of this name, or None; raises as `key`."""
        return await self._tenants.get(tenant_entry(name))

    def forget(self, tenant: str) -> list[str]:
        """Drops what is cached of a tenant and its keys; returns their names in the store."""
        keys = self._keys.drop(lambda key: key.tenant == tenant)
        return [*keys, *self._tenants.drop(lambda known: known.name == tenant)]


class _Cache(Generic[T]):
    def __init__(self, bucket: Bucket, decoder: msgspec.json.Decoder[T], stale_s: float) -> None:
        self._bucket, self._decode, self._stale_s = bucket, decoder.decode, stale_s
        self._entries: dict[str, _Entry[T]] = {}
        self._absent: dict[str, _Entry[T]] = {}
        self._reading: dict[str, asyncio.Task[T | None]] = {}

    async def get(self, name: str) -> T | None:
        """The value of ``name``; asks the broker at most once in `FRESH_S` seconds, however many calls there are."""
        present, absent = self._entries.get(name), self._absent.get(name)
        entry = present or absent
        if entry is not None and time.monotonic() - entry.checked < FRESH_S:
            return entry.value
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.create_task(self._read(name))
            reading.add_done_callback(lambda _: self._reading.pop(name))
        return await asyncio.shield(reading)

    def drop(self, goes: Callable[[T], bool]) -> list[str]:
        """Drops the entries whose value ``goes``; returns their names."""
        names = [name for name, entry in self._entries.items() if entry.value is not None and goes(entry.value)]
        for name in names:
            del self._entries[name]
        return names

    async def _read(self, name: str) -> T | None:
        try:
            stored = await self._bucket.get(name)
        except Unavailable:
            return self._stale(name)
        now = time.monotonic()
        value = self._decode(stored.value) if stored is not None else None
        self._entries.pop(name, None)
        self._absent.pop(name, None)
        entries = self._absent if value is None else self._entries
        entries[name] = _Entry(value, now, now)
        _bound(self._entries, _MOST)
        _bound(self._absent, _MOST_ABSENT)
        return value

    def _stale(self, name: str) -> T | None:
        entry, now = self._entries.get(name), time.monotonic()
        if entry is None or now - entry.read > self._stale_s:
            raise Unavailable("keys cannot be checked just now: their store does not answer", retry_after=1.0)
        entry.checked = now
        return entry.value


def _bound(entries: dict[str, Any], most: int) -> None:
    """Drops the oldest entry if there are more than ``most``."""
    if len(entries) > most:
        del entries[next(iter(entries))]
