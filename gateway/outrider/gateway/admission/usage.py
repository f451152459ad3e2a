"""What tenants and keys have used of their limits, as the ledgers have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from outrider.gateway.admission.account import LimitLedger
from outrider.gateway.admission.caller import REQUESTS, STREAMS, TOKENS, Meter
from outrider.mesh.bus import Bucket
from outrider.wire.tenant_records import TenantRecords
from outrider.wire.tenants import Key, Tenant, key_entry, tenant_entry

_decode = msgspec.json.Decoder(LimitLedger).decode


class LimitUsage(msgspec.Struct):
    """The use of one limit of a tenant, or of one of its keys, in the last period that the ledger has.

    Attributes:
        key: the key's id; null for a limit of the tenant.
        period_start: in seconds since 1970; null for a limit of what runs at a time, and where nothing was used yet.
        used: units that gateways have reported as used up.
        held: further units that gateways hold: in use, used and not reported yet, or kept ready.
    """

    tenant: str
    key: str | None
    limit: str
    value: int
    period_s: int
    period_start: int | None
    used: int
    held: int


class Usage(msgspec.Struct):
    """The use of all limits of one tenant, or of all."""

    data: list[LimitUsage]
    object: Literal["list"] = "list"


async def read_usage(records: TenantRecords, ledgers: Bucket, tenant: str | None, now: float) -> Usage:
    """The use of limits of ``tenant`` and its keys, or of all tenants, at ``now``, in seconds since 1970.

    Raises `Missing` and `Unavailable`.
    """
    tenants = [await records.tenant(tenant)] if tenant is not None else await records.tenants()
    owners: list[Tenant | Key] = [*tenants, *await records.keys(tenant)]
    return Usage([usage for owner in owners async for usage in _usages(owner, ledgers, now)])


async def _usages(owner: Tenant | Key, ledgers: Bucket, now: float) -> AsyncIterator[LimitUsage]:
    for meter in (REQUESTS, *TOKENS, STREAMS):
        value = getattr(owner.limits, meter.field)
        if value is not None:
            entry = await ledgers.get(f"{_bucket(owner)}.{meter.field}")
            yield _usage(owner, meter, value, _last(_decode(entry.value), meter, now) if entry else LimitLedger())


def _last(ledger: LimitLedger, meter: Meter, now: float) -> LimitLedger:
    """The ledger in its last period that has begun at ``now``."""
    windows = [ledger.window, *(period.window for period in ledger.others)]
    return ledger.at(max((each for each in windows if each * meter.period_s <= now), default=ledger.window))


def _bucket(owner: Tenant | Key) -> str:
    return tenant_entry(owner.name) if isinstance(owner, Tenant) else key_entry(owner.id)


def _usage(owner: Tenant | Key, meter: Meter, value: int, ledger: LimitLedger) -> LimitUsage:
    return LimitUsage(
        tenant=owner.name if isinstance(owner, Tenant) else owner.tenant,
        key=owner.id if isinstance(owner, Key) else None,
        limit=meter.field,
        value=value,
        period_s=meter.period_s,
        period_start=ledger.window * meter.period_s or None,
        used=ledger.spent,
        held=sum(holding.units for holding in ledger.held.values()),
    )
