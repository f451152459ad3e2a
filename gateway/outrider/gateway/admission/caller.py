"""Who asks, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TypeVar

import msgspec
from outrider.gateway.admission.limit_store import Demand
from outrider.wire.tenants import Key, Limits, Tenant, key_entry, tenant_entry

T = TypeVar("T")
Address = IPv4Address | IPv6Address


class Meter(msgspec.Struct, frozen=True):
    """A limit of `Limits` that is used up: its field, what it is called, and its period (0: it comes back)."""

    field: str
    name: str
    period_s: int


REQUESTS = Meter("requests_per_minute", "requests per minute", 60)
TOKENS = (Meter("tokens_per_minute", "tokens per minute", 60), Meter("tokens_per_day", "tokens per day", 86400))
STREAMS = Meter("concurrent_streams", "concurrent streams", 0)


class Bound(msgspec.Struct, frozen=True):
    """Limits, whose they are, and where they are counted."""

    owner: str
    place: str
    limits: Limits


class Caller(msgspec.Struct, frozen=True):
    """A tenant, as one of its keys shows it: both have their limits, and all of them hold.

    ``parse_special`` says whether names of special tokens in texts are those tokens, where a request does not say.
    """

    tenant: str = "default"
    bounds: tuple[Bound, ...] = ()
    priority: int = 0
    weight: float = 1.0
    parse_special: bool = True

    def may_use(self, model: str) -> bool:
        """Whether ``model`` is among those allowed."""
        return all(model in bound.limits.models for bound in self.bounds if bound.limits.models is not None)

    def may_come_from(self, address: Address | None) -> bool:
        """Whether ``address`` is in the networks allowed; None is in none."""
        allowed = [bound.limits.networks for bound in self.bounds if bound.limits.networks is not None]
        return all(
            address is not None and any(address in ip_network(network) for network in networks) for networks in allowed
        )

    def least(self, field: str) -> tuple[int, str] | None:
        """The lowest of the limits called ``field`` and whose it is, if there is one."""
        limits = ((getattr(bound.limits, field), bound.owner) for bound in self.bounds)
        return min(((limit, owner) for limit, owner in limits if limit is not None), default=None)

    def demands(self, meters: Iterable[Meter], amount: int) -> list[Demand]:
        """``amount`` of every one of these limits that there is."""
        return [
            Demand(f"{bound.place}.{meter.field}", meter.name, bound.owner, limit, meter.period_s, amount)
            for meter in meters
            for bound in self.bounds
            if (limit := getattr(bound.limits, meter.field)) is not None
        ]


def caller(tenant: Tenant, key: Key) -> Caller:
    """Who shows ``key`` of ``tenant``; a key's own priority, weight and parsing go over the tenant's."""
    return Caller(
        tenant.name,
        (
            Bound(f"tenant {tenant.name}", tenant_entry(tenant.name), tenant.limits),
            Bound(f"key {key.id}", key_entry(key.id), key.limits),
        ),
        _first(key.limits.priority, tenant.limits.priority, 0),
        _first(key.limits.weight, tenant.limits.weight, 1.0),
        _first(key.limits.parse_special_tokens, tenant.limits.parse_special_tokens, True),
    )


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
