"""Reads and changes stored tenants and keys: the commands and the gateway's admin API do so alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec
from outrider.wire.tenants import NAME, Key, Limits, Tenant, key_entry, new_key, tenant_entry

R = TypeVar("R", Tenant, Key)


class Entry(Protocol):
    """A stored value and its revision."""

    @property
    def value(self) -> bytes:
        """The value."""

    @property
    def revision(self) -> int:
        """Its revision."""


class Bucket(Protocol):
    """The methods of `outrider.mesh.bus.Bucket` that records need."""

    async def get(self, key: str) -> Entry | None:
        """The value of ``key``, if it has one."""

    async def keys(self) -> list[str]:
        """All keys."""

    async def swap(self, key: str, value: bytes, revision: int) -> int:
        """Writes if ``key`` still has ``revision``, else raises an error."""


class Missing(LookupError):
    """There is no record of that ``kind``, tenant or key, and ``name``; ``similar`` are those that exist."""

    def __init__(self, kind: str, name: str, similar: Iterable[str] = ()) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind, self.name, self.similar = kind, name, list(similar)


class Unchangeable(ValueError):
    """The record cannot be changed so, or may not be called so."""


class TenantRecords:
    """The tenants and keys in ``bucket``; times are in seconds since 1970.

    Methods raise what the bucket raises: at a change, an error if another has changed the record at the same time.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def tenant(self, name: str) -> Tenant:
        """The tenant of this name, or `Missing`."""
        return (await self._tenant(name))[0]

    async def tenants(self) -> Sequence[Tenant]:
        """All tenants, by name."""
        return await self._all(tenant_entry(""), Tenant)

    async def set_limits(self, name: str, change: Callable[[Limits], Limits], now: float) -> tuple[Tenant, bool]:
        """The tenant after ``change`` of its limits, and whether it is new; `Unchangeable` for a name that is none."""
        if not NAME.fullmatch(name):
            raise Unchangeable(f"{name!r} is no name for a tenant: 1 to 64 letters, digits, - and _")
        stored = await self._read(tenant_entry(name), Tenant)
        tenant, revision = stored or (Tenant(name=name, created=now), 0)
        tenant = msgspec.structs.replace(tenant, limits=change(tenant.limits))
        await self._write(tenant_entry(name), tenant, revision)
        return tenant, stored is None

    async def switch_tenant(self, name: str, now: float, *, disabled: bool) -> tuple[Tenant, bool]:
        """The tenant, disabled or served again, and whether that is a change; `Missing` if there is no such tenant."""
        tenant, revision = await self._tenant(name)
        if (tenant.disabled is not None) == disabled:
            return tenant, False
        tenant = msgspec.structs.replace(tenant, disabled=now if disabled else None)
        await self._write(tenant_entry(name), tenant, revision)
        return tenant, True

    async def key(self, id_: str) -> Key:
        """The key with this id, or `Missing`; a key's text, or its beginning, counts as its id."""
        return (await self._key(id_))[0]

    async def keys(self, tenant: str | None = None) -> Sequence[Key]:
        """All keys, or those of a tenant, the newest last; `Missing` if there is no such tenant."""
        if tenant is not None:
            await self.tenant(tenant)
        keys = await self._all(key_entry(""), Key)
        return sorted((key for key in keys if tenant in (None, key.tenant)), key=lambda key: key.created)

    async def create_key(
        self,
        tenant: str,
        now: float,
        *,
        label: str = "",
        expires: float | None = None,
        scopes: tuple[str, ...] = (),
        limits: Limits | None = None,
    ) -> tuple[Key, str]:
        """A new key and its text, which cannot be read again; `Missing` if there is no such tenant."""
        await self.tenant(tenant)
        return await self._add(*new_key(tenant, now, label=label, expires=expires, scopes=scopes, limits=limits))

    async def rotate_key(self, id_: str, grace_s: float, now: float) -> tuple[Key, str, Key]:
        """A new key as the old one was, its text, and the old key, which ends after ``grace_s`` seconds.

        Raises `Missing`, and `Unchangeable` for a key that is not active or was replaced before.
        """
        old, revision = await self._key(id_)
        if old.state(now) != "active":
            raise Unchangeable(f"the key {old.id} is {old.state(now)}: create another")
        if old.replaced is not None:
            when = datetime.fromtimestamp(old.replaced, UTC)
            raise Unchangeable(f"the key {old.id} was replaced at {when:%Y-%m-%d %H:%M:%SZ}: rotate the newer one")
        expires = None if old.expires is None else now + (old.expires - old.created)
        key, text = await self._add(
            *new_key(old.tenant, now, label=old.label, expires=expires, scopes=old.scopes, limits=old.limits)
        )
        until = min(now + grace_s, old.expires or now + grace_s)
        old = msgspec.structs.replace(old, expires=until, replaced=now)
        await self._write(key_entry(old.id), old, revision)
        return key, text, old

    async def revoke_key(self, id_: str, now: float) -> tuple[Key, bool]:
        """The key, revoked, and whether it was not before; `Missing` if there is none."""
        key, revision = await self._key(id_)
        if key.revoked is not None:
            return key, False
        key = msgspec.structs.replace(key, revoked=now)
        await self._write(key_entry(key.id), key, revision)
        return key, True

    async def _tenant(self, name: str) -> tuple[Tenant, int]:
        stored = await self._read(tenant_entry(name), Tenant) if NAME.fullmatch(name) else None
        if stored is None:
            raise Missing("tenant", name, [tenant.name for tenant in await self.tenants()])
        return stored

    async def _key(self, id_: str) -> tuple[Key, int]:
        bare = id_.removeprefix("sk-").partition("-")[0]
        stored = await self._read(key_entry(bare), Key) if bare.isascii() and bare.isalnum() else None
        if stored is None:
            raise Missing("key", bare)
        return stored

    async def _add(self, key: Key, text: str) -> tuple[Key, str]:
        await self._write(key_entry(key.id), key, 0)
        return key, text

    async def _all(self, prefix: str, kind: type[R]) -> list[R]:
        entries = [entry for entry in await self._bucket.keys() if entry.startswith(prefix)]
        records = [await self._read(entry, kind) for entry in entries]
        return [record[0] for record in records if record is not None]

    async def _read(self, entry: str, kind: type[R]) -> tuple[R, int] | None:
        stored = await self._bucket.get(entry)
        return (msgspec.json.decode(stored.value, type=kind), stored.revision) if stored else None

    async def _write(self, entry: str, record: Tenant | Key, revision: int) -> None:
        await self._bucket.swap(entry, msgspec.json.encode(record), revision)
