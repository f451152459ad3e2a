"""Writes tenants and keys into the mesh's key-value store, for gateways to read."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from outrider.cli.stores.store import local_user, print_table, run_with
from outrider.mesh.bus import Bucket
from outrider.mesh.config import fields
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import AlreadyExists, ConfigError
from outrider.mesh.telemetry import audit
from outrider.mesh.telemetry.audit_record import Event
from outrider.wire.tenant_records import Missing, TenantRecords, Unchangeable
from outrider.wire.tenants import BUCKET, SCOPES, Key, Limits, Tenant

_SPAN = re.compile(r"([0-9]{1,12})([smhd])")
_MOST_DAYS = 36500
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run(work: Callable[[Records], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the stored records; returns the exit code."""
    return run_with(BUCKET, "outrider keys", lambda bucket: work(Records(bucket)), nats_url, config)


class Records:
    """The stored tenants and keys; each method runs one command, prints its result, and tells the audit log."""

    def __init__(self, bucket: Bucket) -> None:
        self._records = TenantRecords(bucket)

    async def set_tenant(self, name: str, changes: Iterable[str]) -> None:
        """Creates a tenant, or changes its limits."""
        with _as_config_errors():
            change = partial(with_changes, changes=list(changes))
            tenant, created = await self._records.set_limits(name, change, time.time())
        limits = _limits(tenant.limits)
        _audit("tenant_created" if created else "tenant_changed", tenant.name, f"tenant {tenant.name}", limits)
        _show(tenant)

    async def show_tenant(self, name: str) -> None:
        """Prints one tenant."""
        with _as_config_errors():
            _show(await self._records.tenant(name))

    async def list_tenants(self) -> None:
        """Prints all tenants."""
        tenants = await self._records.tenants()
        print_table(
            ("tenant", "created", "state", "limits"),
            (
                (t.name, _date(t.created), "active" if t.disabled is None else "disabled", _limits(t.limits))
                for t in tenants
            ),
        )

    async def switch_tenant(self, name: str, *, disabled: bool) -> None:
        """Disables a tenant, or serves it again."""
        with _as_config_errors():
            _, changed = await self._records.switch_tenant(name, time.time(), disabled=disabled)
        if changed:
            _audit("tenant_changed", name, f"tenant {name}", "disabled" if disabled else "enabled")
        print(f"The tenant {name} is {'disabled' if disabled else 'enabled'}.")

    async def create(
        self, tenant: str, label: str, expires: str | None, changes: Iterable[str], scopes: Sequence[str] = ()
    ) -> None:
        """Creates a key and prints it."""
        if wrong := [scope for scope in scopes if scope not in SCOPES]:
            raise ConfigError(f"--scope {wrong[0]}: not one of {', '.join(SCOPES)}{nearest(wrong[0], SCOPES)}")
        limits = with_changes(Limits(), changes)
        now = time.time()
        ends = None if expires is None else now + parse_span(expires, "--expires", least=1)
        with _as_config_errors():
            key, text = await self._records.create_key(
                tenant, now, label=label, expires=ends, scopes=tuple(scopes), limits=limits
            )
        _audit("key_created", key.tenant, f"key {key.id}", f"{_scopes(key)}: {_limits(key.limits)}")
        _print_key(key, text)

    async def list_keys(self, tenant: str | None) -> None:
        """Prints keys, the newest last."""
        now = time.time()
        with _as_config_errors():
            keys = await self._records.keys(tenant)
        print_table(
            ("id", "tenant", "label", "state", "created", "expires", "scopes"),
            ((k.id, k.tenant, k.label, k.state(now), _date(k.created), _date(k.expires), _scopes(k)) for k in keys),
        )

    async def show_key(self, id_: str) -> None:
        """Prints one key."""
        with _as_config_errors():
            _show(await self._records.key(id_))

    async def rotate(self, id_: str, grace: str) -> None:
        """Creates a key with the old key's limits and lifetime; the old key expires after ``grace``."""
        span = parse_span(grace, "--grace")
        with _as_config_errors():
            key, text, old = await self._records.rotate_key(id_, span, time.time())
        _audit("key_rotated", old.tenant, f"key {old.id}", f"key {key.id} replaces it, {_date(old.expires)} at last")
        _print_key(key, text)
        print(f"The key {old.id} is valid until {_date(old.expires)}.", file=sys.stderr)

    async def revoke(self, id_: str) -> None:
        """Revokes one key."""
        with _as_config_errors():
            key, changed = await self._records.revoke_key(id_, time.time())
        if changed:
            _audit("key_revoked", key.tenant, f"key {key.id}")
        print(f"The key {key.id} is revoked.")

    async def revoke_all(self, tenant: str) -> None:
        """Revokes all keys of a tenant."""
        with _as_config_errors():
            keys = await self._records.keys(tenant)
        for key in keys:
            await self.revoke(key.id)


_HINTS = {"tenant": "`outrider tenants set` makes one", "key": "`outrider keys list` shows all"}


@contextmanager
def _as_config_errors() -> Iterator[None]:
    """Raises errors of the store as `ConfigError`, which say how to go on."""
    try:
        yield
    except Missing as error:
        raise ConfigError(f"{error}{nearest(error.name, error.similar)}: {_HINTS[error.kind]}") from None
    except Unchangeable as error:
        raise ConfigError(str(error)) from None
    except AlreadyExists as error:
        raise ConfigError(f"{error.message} at the same time: try again") from None


def _audit(event: Event, tenant: str, subject: str, reason: str = "") -> None:
    audit(event, actor=local_user(), tenant=tenant, door="cli", subject=subject, reason=reason)


def _print_key(key: Key, text: str) -> None:
    print(f"Key {key.id} of tenant {key.tenant}, which is shown only this once:", file=sys.stderr)
    print(text)


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
    for name in ("created", "disabled", "expires", "revoked", "replaced"):
        if name in shown:
            shown[name] = _date(shown[name])
    if isinstance(record, Key):
        shown |= {"state": record.state(time.time()), "scopes": _scopes(record)}
    print_table(("", ""), shown.items(), head=False)


def _scopes(key: Key) -> str:
    return ",".join(key.scopes) or "all APIs"


def _limits(limits: Limits) -> str:
    set_limits = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}
    return " ".join(f"{name}={','.join(v) if isinstance(v, tuple) else v}" for name, v in set_limits.items()) or "none"


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
