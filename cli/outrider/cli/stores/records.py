"""Writes tenants and keys into the mesh's key-value store, for gateways to read."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from outrider.cli.stores.store import print_table, run_with
from outrider.mesh.bus import Bucket
from outrider.mesh.config import fields
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import AlreadyExists, ConfigError
from outrider.wire.tenants import BUCKET, NAME, Key, Limits, Tenant, key_entry, new_key, tenant_entry

_SPAN = re.compile(r"([0-9]{1,12})([smhd])")
_MOST_DAYS = 36500
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

R = TypeVar("R", Tenant, Key)


def run(work: Callable[[Records], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the stored records; returns the exit code."""
    return run_with(BUCKET, "outrider keys", lambda bucket: work(Records(bucket)), nats_url, config)


class Records:
    """The stored tenants and keys; each method runs one command and prints its result."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def set_tenant(self, name: str, changes: Iterable[str]) -> None:
        """Creates a tenant, or changes its limits."""
        if not NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name for a tenant: 1 to 64 letters, digits, - and _")
        stored = await self._read(tenant_entry(name), Tenant)
        tenant, revision = stored or (Tenant(name=name, created=time.time()), 0)
        tenant = msgspec.structs.replace(tenant, limits=with_changes(tenant.limits, changes))
        await self._write(tenant_entry(name), tenant, revision)
        _show(tenant)

    async def show_tenant(self, name: str) -> None:
        """Prints one tenant."""
        _show(await self._tenant(name))

    async def list_tenants(self) -> None:
        """Prints all tenants."""
        tenants = await self._all(tenant_entry(""), Tenant)
        print_table(("tenant", "created", "limits"), ((t.name, _date(t.created), _limits(t.limits)) for t in tenants))

    async def create(self, tenant: str, label: str, expires: str | None, changes: Iterable[str]) -> None:
        """Creates a key and prints it."""
        await self._tenant(tenant)
        limits = with_changes(Limits(), changes)
        now = time.time()
        ends = None if expires is None else now + parse_span(expires, "--expires", least=1)
        await self._add(*new_key(tenant, now, label=label, expires=ends, limits=limits))

    async def list_keys(self, tenant: str | None) -> None:
        """Prints keys, the newest last."""
        now = time.time()
        if tenant is not None:
            await self._tenant(tenant)
        print_table(
            ("id", "tenant", "label", "state", "created", "expires"),
            (
                (k.id, k.tenant, k.label, k.state(now), _date(k.created), _date(k.expires))
                for k in await self._keys(tenant)
            ),
        )

    async def show_key(self, id_: str) -> None:
        """Prints one key."""
        key, _ = await self._key(id_)
        _show(key)

    async def rotate(self, id_: str, grace: str) -> None:
        """Creates a key with the old key's limits and lifetime; the old key expires after ``grace``."""
        now, span = time.time(), parse_span(grace, "--grace")
        old, revision = await self._key(id_)
        if old.state(now) != "active":
            raise ConfigError(f"the key {old.id} is {old.state(now)}: make another with `outrider keys create`")
        if old.replaced is not None:
            raise ConfigError(f"the key {old.id} was replaced at {_date(old.replaced)}: rotate the newer one")
        ends = None if old.expires is None else now + (old.expires - old.created)
        await self._add(*new_key(old.tenant, now, label=old.label, expires=ends, limits=old.limits))
        until = min(now + span, old.expires or now + span)
        await self._write(key_entry(old.id), msgspec.structs.replace(old, expires=until, replaced=now), revision)
        print(f"The key {old.id} is valid until {_date(until)}.", file=sys.stderr)

    async def revoke(self, id_: str) -> None:
        """Revokes one key."""
        key, revision = await self._key(id_)
        if key.revoked is None:
            await self._write(key_entry(key.id), msgspec.structs.replace(key, revoked=time.time()), revision)
        print(f"The key {key.id} is revoked.")

    async def revoke_all(self, tenant: str) -> None:
        """Revokes all keys of a tenant."""
        await self._tenant(tenant)
        for key in await self._keys(tenant):
            await self.revoke(key.id)

    async def _add(self, key: Key, text: str) -> None:
        await self._write(key_entry(key.id), key, 0)
        print(f"Key {key.id} of tenant {key.tenant}, which is shown only this once:", file=sys.stderr)
        print(text)

    async def _tenant(self, name: str) -> Tenant:
        stored = await self._read(tenant_entry(name), Tenant) if NAME.fullmatch(name) else None
        if stored is None:
            names = [tenant.name for tenant in await self._all(tenant_entry(""), Tenant)]
            raise ConfigError(f"there is no tenant {name}{nearest(name, names)}: `outrider tenants set` makes one")
        return stored[0]

    async def _key(self, id_: str) -> tuple[Key, int]:
        bare = id_.removeprefix("sk-").partition("-")[0]
        stored = await self._read(key_entry(bare), Key) if bare.isascii() and bare.isalnum() else None
        if stored is None:
            raise ConfigError(f"there is no key {bare}: `outrider keys list` shows all")
        return stored

    async def _keys(self, tenant: str | None) -> list[Key]:
        keys = await self._all(key_entry(""), Key)
        return sorted((key for key in keys if tenant in (None, key.tenant)), key=lambda key: key.created)

    async def _all(self, prefix: str, kind: type[R]) -> list[R]:
        entries = [entry for entry in await self._bucket.keys() if entry.startswith(prefix)]
        records = [await self._read(entry, kind) for entry in entries]
        return [record[0] for record in records if record is not None]

    async def _read(self, entry: str, kind: type[R]) -> tuple[R, int] | None:
        stored = await self._bucket.get(entry)
        return (msgspec.json.decode(stored.value, type=kind), stored.revision) if stored else None

    async def _write(self, entry: str, record: Tenant | Key, revision: int) -> None:
        try:
            await self._bucket.swap(entry, msgspec.json.encode(record), revision)
        except AlreadyExists:
            raise ConfigError(f"another client changed {entry} at the same time: try again") from None


def with_changes(limits: Limits, changes: Iterable[str]) -> Limits:
    """``limits`` after changes of the form ``name=value``; `ConfigError` for a wrong change."""
    allowed, values = fields(Limits), msgspec.structs.asdict(limits)
    for text in changes:
        name, separator, value = text.partition("=")
        if not separator or name not in allowed:
            raise ConfigError(f"--limit {text}: it is written NAME=VALUE, with one of {', '.join(allowed)}")
        values[name] = None if value == "none" else allowed[name].convert(value, "--limit")
    try:
        return Limits(**values)
    except ValueError as error:
        raise ConfigError(f"--limit networks: {error}") from None


def parse_span(text: str, option: str, least: int = 0) -> float:
    """Seconds of ``90d``, ``12h``, ``30m`` or ``45s``; `ConfigError` for another form, or a time out of bounds."""
    span = _SPAN.fullmatch(text)
    if span is None:
        raise ConfigError(f"{option} {text}: a time is written 90d, 12h, 30m or 45s")
    seconds = int(span[1]) * _SECONDS[span[2]]
    if not least <= seconds <= _MOST_DAYS * _SECONDS["d"]:
        raise ConfigError(f"{option} {text}: a time is {least}s to {_MOST_DAYS}d")
    return float(seconds)


def _show(record: Tenant | Key) -> None:
    shown = msgspec.structs.asdict(record) | {"limits": _limits(record.limits)}
    shown.pop("digest", None)
    for name in ("created", "expires", "revoked", "replaced"):
        if name in shown:
            shown[name] = _date(shown[name])
    if isinstance(record, Key):
        shown["state"] = record.state(time.time())
    print_table(("", ""), shown.items(), head=False)


def _limits(limits: Limits) -> str:
    set_limits = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}
    return " ".join(f"{name}={','.join(v) if isinstance(v, tuple) else v}" for name, v in set_limits.items()) or "none"


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
