"""The caller of a request, and its permissions and limits."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_network
from math import inf
from typing import TypeVar

import msgspec
from outrider.gateway.admission.limit_store import Demand
from outrider.wire.residency import Residency
from outrider.wire.tenants import Key, Limits, Tenant, key_entry, tenant_entry

T = TypeVar("T")
Address = IPv4Address | IPv6Address


class Meter(msgspec.Struct, frozen=True):
    """A limit that requests use up: its field in `Limits`, its name in messages, and its period in seconds.

    A period of 0 means that units come back when they are released.
    """

    field: str
    name: str
    period_s: int


REQUESTS = Meter("requests_per_minute", "requests per minute", 60)
TOKENS = (Meter("tokens_per_minute", "tokens per minute", 60), Meter("tokens_per_day", "tokens per day", 86400))
STREAMS = Meter("concurrent_streams", "concurrent streams", 0)


class OwnedLimits(msgspec.Struct, frozen=True):
    """The limits of a tenant or of a key: their owner's name in messages, and the bucket in which they are counted."""

    owner: str
    bucket: str
    limits: Limits


class Credential(msgspec.Struct, frozen=True):
    """What a caller was authenticated by: the key ``key``, or a token if that is empty.

    ``name`` is for logs. ``expires`` is the end of a token, in seconds since 1970; that of a key may change.
    """

    name: str
    key: str = ""
    expires: float = inf


class Caller(msgspec.Struct, frozen=True):
    """A tenant, identified by one of its keys or by a token. The limits of both tenant and key or token hold.

    ``parse_special`` is the default for requests: whether the name of a special token in a text becomes that token.
    ``grammar_tokens`` says whether its grammars may name special tokens; None is the gateway's setting. Without
    ``learning``, requests are not guessed from earlier answers, and answers are not kept for that. With
    ``obfuscation``, sizes and times of all streams' events do not depend on the text.
    ``credential`` is None without access control. ``scopes`` are as in `Key`.
    """

    tenant: str = "default"
    limits: tuple[OwnedLimits, ...] = ()
    priority: int = 0
    weight: float = 1.0
    parse_special: bool = True
    credential: Credential | None = None
    scopes: tuple[str, ...] = ()
    grammar_tokens: bool | None = None
    learning: bool = True
    obfuscation: bool = False

    @property
    def actor(self) -> str:
        """The name of the key or token in logs; empty without access control."""
        return "" if self.credential is None else self.credential.name

    @property
    def admin(self) -> bool:
        """Whether the caller may administer the mesh."""
        return "admin" in self.scopes

    def may_use_api(self, api: str) -> bool:
        """Whether the caller may send requests to ``api``, one of `SCOPES`."""
        return not self.scopes or api in self.scopes

    @property
    def residency(self) -> Residency:
        """Tags of the services that may hold the caller's data: those that tenant and key both allow."""
        tags = [owned.limits.residency for owned in self.limits if owned.limits.residency is not None]
        return frozenset.intersection(*map(frozenset, tags)) if tags else None

    def may_use(self, model: str) -> bool:
        """Whether the caller may use ``model``."""
        return all(model in owned.limits.models for owned in self.limits if owned.limits.models is not None)

    def may_come_from(self, address: Address | None) -> bool:
        """Whether ``address`` is in the allowed networks; an unknown address (None) is in no network."""
        allowed = [owned.limits.networks for owned in self.limits if owned.limits.networks is not None]
        return all(
            address is not None and any(address in ip_network(network) for network in networks) for networks in allowed
        )

    def lowest(self, field: str) -> tuple[int, str] | None:
        """The lowest limit in ``field`` and its owner; None if there is no such limit."""
        limits = ((getattr(owned.limits, field), owned.owner) for owned in self.limits)
        return min(((limit, owner) for limit, owner in limits if limit is not None), default=None)

    def demands(self, meters: Iterable[Meter], amount: int) -> list[Demand]:
        """A demand for ``amount`` of each of these limits that the caller has."""
        return [
            Demand(f"{owned.bucket}.{meter.field}", meter.name, owned.owner, limit, meter.period_s, amount)
            for meter in meters
            for owned in self.limits
            if (limit := getattr(owned.limits, meter.field)) is not None
        ]


def make_caller(tenant: Tenant, own: OwnedLimits, credential: Credential, scopes: tuple[str, ...]) -> Caller:
    """The caller of ``tenant`` with ``own`` limits, whose priority, weight and flags override those of the tenant."""
    return Caller(
        tenant.name,
        (OwnedLimits(f"tenant {tenant.name}", tenant_entry(tenant.name), tenant.limits), own),
        _first(own.limits.priority, tenant.limits.priority, 0),
        _first(own.limits.weight, tenant.limits.weight, 1.0),
        _first(own.limits.parse_special_tokens, tenant.limits.parse_special_tokens, True),
        credential,
        scopes,
        tenant.limits.grammar_tokens if own.limits.grammar_tokens is None else own.limits.grammar_tokens,
        tenant.limits.learning is not False and own.limits.learning is not False,
        bool(tenant.limits.obfuscation or own.limits.obfuscation),
    )


def caller_with_key(tenant: Tenant, key: Key) -> Caller:
    """The caller with ``key`` of ``tenant``."""
    own = OwnedLimits(f"key {key.id}", key_entry(key.id), key.limits)
    return make_caller(tenant, own, Credential(f"key {key.id}", key.id), key.scopes)


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
