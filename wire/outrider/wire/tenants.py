"""Tenants and their keys, as they are stored, with their limits.

They are JSON in the key-value bucket `BUCKET`: a tenant under `tenant_entry`, a key under `key_entry`. Of a key's
secret only the SHA-256 is stored, without a slow hash: 256 random bits cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from typing import Annotated

import msgspec
from msgspec import Meta
from outrider.wire.bounds import Flag, Priority, Weight, integers

BUCKET = "outrider-tenants"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A tenant's name, which is a part of subjects."""

SCOPES = ("http", "grpc", "nats", "admin")
"""What a key may be limited to: APIs, and the administration of the mesh."""

_KEY = re.compile(r"sk-(?P<id>[0-9a-f]{16})-(?P<secret>[A-Za-z0-9_-]+)")
_SHOWN_KEY = re.compile(r"(sk-[0-9a-f]{16}-)[A-Za-z0-9_-]+")
_SECRET_BYTES = 32

_Count = Annotated[int, integers(1, (1 << 53) - 1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a tenant or a key; None is no limit of its own.

    Minutes and days are those of UTC; ``networks`` are CIDRs. `ValueError` for a malformed one. ``residency`` holds
    the tags of services that may hold the tenant's data.
    """

    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None
    tokens_per_day: _Count | None = None
    concurrent_streams: _Count | None = None
    max_context_tokens: _Count | None = None
    max_output_tokens: _Count | None = None
    models: Annotated[tuple[str, ...], Meta(description="an array of names of models")] | None = None
    filters: Annotated[tuple[str, ...], Meta(description="an array of names of filters")] | None = None
    networks: Annotated[tuple[str, ...], Meta(description="an array of networks (CIDRs)")] | None = None
    priority: Priority | None = None
    weight: Weight | None = None
    parse_special_tokens: Flag | None = None
    grammar_tokens: Flag | None = None
    learning: Flag | None = None
    obfuscation: Flag | None = None
    residency: Annotated[tuple[str, ...], Meta(description="an array of tags of services")] | None = None

    def __post_init__(self) -> None:
        for network in self.networks or ():
            ipaddress.ip_network(network)


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, to which keys and requests belong. Times are in seconds since 1970.

    ``disabled`` is since when nobody is served for the tenant; None if it is served.
    """

    name: str
    created: float
    disabled: float | None = None
    limits: Limits = Limits()


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a tenant, with limits beside the tenant's. Times are in seconds since 1970.

    ``replaced`` is when another key replaced it; the key then expires at the end of the grace period. A key with
    ``scopes``, some of `SCOPES`, is for these alone; a key without is for all APIs, and never for administration.
    """

    id: str
    tenant: str
    digest: str
    created: float
    label: str = ""
    expires: float | None = None
    revoked: float | None = None
    replaced: float | None = None
    scopes: tuple[str, ...] = ()
    limits: Limits = Limits()

    def matches(self, secret: str) -> bool:
        """Whether ``secret`` is this key's, compared in constant time."""
        return hmac.compare_digest(self.digest, _digest(secret))

    def state(self, now: float) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "active"


NO_KEY = Key(id="", tenant="", digest="0" * 64, created=0.0)
"""The key that stands in for an unknown one: no secret is known to match."""


def new_key(
    tenant: str,
    now: float,
    *,
    label: str = "",
    expires: float | None = None,
    scopes: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> tuple[Key, str]:
    """A key to store, and its text, which cannot be recovered."""
    id_, secret = secrets.token_hex(8), secrets.token_urlsafe(_SECRET_BYTES)
    key = Key(
        id=id_,
        tenant=tenant,
        digest=_digest(secret),
        created=now,
        label=label,
        expires=expires,
        scopes=scopes,
        limits=limits or Limits(),
    )
    return key, f"sk-{id_}-{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Id and secret of a key's text, a secret of any length; None for a text that is no key."""
    match = _KEY.fullmatch(text)
    return (match["id"], match["secret"]) if match else None


def without_secrets(text: str) -> str:
    """``text`` with the secrets of keys in it replaced by dots, for logs of what a client wrote."""
    return _SHOWN_KEY.sub(r"\1...", text)


def tenant_entry(name: str) -> str:
    """The key of a tenant in the bucket."""
    return f"tenant.{name}"


def key_entry(id_: str) -> str:
    """The key of an API key in the bucket."""
    return f"key.{id_}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
