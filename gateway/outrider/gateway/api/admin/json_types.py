"""The bodies, queries and answers of the admin API. Times are in seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.mesh.config.fields import nearest
from outrider.mesh.errors import InvalidRequest
from outrider.wire import bounds
from outrider.wire.bounds import hints_of, integers
from outrider.wire.tenants import NAME, SCOPES, Key, Limits, Tenant

_MOST_S = 36500 * 86400
_DAY_S = 86400
TenantName = Annotated[
    str, Meta(pattern=f"^{NAME.pattern}$", description="the name of a tenant: 1 to 64 letters, digits, '-' and '_'")
]
KeyId = Annotated[str, Meta(pattern="^[0-9a-f]{16}$", description="the id of a key: 16 of 0-9 and a-f")]


Scope = Literal["http", "grpc", "nats", "admin"]
_Limits = Annotated[dict[str, Any], Meta(description="an object with values of limits by their names")]


class TenantBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``PUT /admin/v1/tenants/{name}``."""

    limits: _Limits


class KeyBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /admin/v1/keys``. Without ``expires_s`` the key does not expire; ``scopes`` are as in `Key`."""

    tenant: TenantName
    label: Annotated[str, Meta(max_length=200, description="a string of at most 200 characters")] = ""
    expires_s: Annotated[int, integers(1, _MOST_S, ", in seconds")] | None = None
    scopes: Annotated[list[Scope], Meta(description=f"an array of some of {', '.join(SCOPES)}")] = []
    limits: _Limits = {}


class RotateBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /admin/v1/keys/{id}/rotate``: seconds for which the old key stays valid."""

    grace_s: Annotated[int, integers(0, _MOST_S, ", in seconds")] = _DAY_S


class TenantQuery(msgspec.Struct, frozen=True):
    """Parameters of lists: those of one ``tenant`` only."""

    tenant: TenantName | None = None


class TenantRecord(msgspec.Struct):
    """A tenant and its limits; ``disabled`` is since when nobody is served for it."""

    name: str
    created: int
    disabled: int | None
    limits: Limits
    object: Literal["tenant"] = "tenant"

    @classmethod
    def of(cls, tenant: Tenant) -> TenantRecord:
        """``tenant`` as it is shown."""
        return cls(tenant.name, int(tenant.created), _whole(tenant.disabled), tenant.limits)


class TenantRecords(msgspec.Struct):
    """Tenants, by name."""

    data: list[TenantRecord]
    object: Literal["list"] = "list"


class KeyRecord(msgspec.Struct, kw_only=True):
    """A key without its secret. A key that was ``replaced`` is valid until it ``expires``."""

    id: str
    tenant: str
    label: str
    state: Literal["active", "expired", "revoked"]
    created: int
    expires: int | None
    revoked: int | None
    replaced: int | None
    scopes: tuple[str, ...]
    limits: Limits
    object: Literal["key"] = "key"

    @classmethod
    def of(cls, key: Key, now: float) -> KeyRecord:
        """``key`` as it is shown at the time ``now``."""
        return cls(**_shown(key, now))


class NewKey(KeyRecord, kw_only=True):
    """A key that was just made, and its text ``key``, which is shown only this once."""

    key: str

    @classmethod
    def made(cls, key: Key, text: str, now: float) -> NewKey:
        """The new ``key`` with its text."""
        return cls(**_shown(key, now), key=text)


class KeyRecords(msgspec.Struct):
    """Keys, the newest last."""

    data: list[KeyRecord]
    object: Literal["list"] = "list"


def read_limits(values: Mapping[str, Any]) -> Limits:
    """The limits in a body; one that is absent or null does not apply. Raises `InvalidRequest`."""
    known = hints_of(Limits)
    for name in values:
        if name not in known:
            raise InvalidRequest(f"limits.{name} is no limit{nearest(name, known)}", param="limits")
    try:
        return bounds.read(Limits, values, "limits.")
    except bounds.OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None
    except ValueError as error:
        raise InvalidRequest(f"limits.networks: {error}", param="limits.networks") from None


def _shown(key: Key, now: float) -> dict[str, Any]:
    times = {name: _whole(getattr(key, name)) for name in ("created", "expires", "revoked", "replaced")}
    same = {name: getattr(key, name) for name in ("id", "tenant", "label", "scopes", "limits")}
    return same | times | {"state": key.state(now)}


def _whole(time: float | None) -> int | None:
    return None if time is None else int(time)
