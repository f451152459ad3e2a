"""Admits requests at every front door: checks keys and networks, and counts requests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar

import msgspec
from outrider.gateway.admission.caller import Address, Caller, make_caller
from outrider.gateway.admission.directory import Directory
from outrider.gateway.admission.limit_store import LimitReached, LimitStore
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import OutriderError, PermissionDenied, Unauthenticated
from outrider.mesh.telemetry import audit
from outrider.mesh.telemetry.audit import Event
from outrider.wire.tenants import parse_key

Network = IPv4Network | IPv6Network
_HOW_TO_SEND = "send one as `Authorization: Bearer sk-...`"


class InvalidKey(Unauthenticated):
    """The request has no key, or no valid key."""

    type: ClassVar[str] = "invalid_request_error"
    reason: ClassVar[str] = "invalid_api_key"


class WrongNetwork(PermissionDenied):
    """The key is valid, but not from this address."""

    reason: ClassVar[str] = "ip_not_allowed"


_AUDITED: tuple[tuple[type[OutriderError], Event], ...] = (
    (Unauthenticated, "authentication_refused"),
    (PermissionDenied, "permission_refused"),
    (LimitReached, "limit_reached"),
)


class Sender(msgspec.Struct, frozen=True):
    """The sender of a request: the peer's address, if there is one, and HTTP headers or their equivalents.

    ``door`` and ``request``, the request's id, are for the audit log.
    """

    peer: str = ""
    authorization: str = ""
    api_key: str = ""
    forwarded: Sequence[str] = ()
    door: str = ""
    request: str = ""

    @property
    def key(self) -> str:
        """The key, or an empty string."""
        scheme, _, key = self.authorization.partition(" ")
        return key.strip() if scheme.lower() == "bearer" else self.api_key


class AccessControl:
    """Admits requests. Without a ``directory`` all requests have one caller, which has no limits."""

    def __init__(self, store: LimitStore, directory: Directory | None, trusted_proxies: Sequence[str]) -> None:
        self._store, self._directory = store, directory
        self._proxies = [ip_network(network) for network in trusted_proxies]

    @asynccontextmanager
    async def admitted(self, sender: Sender, headers: dict[str, str], *, counts: bool) -> AsyncIterator[Admission]:
        """The admission of one request; ``headers`` receives the headers that report limits.

        Only a request that ``counts`` counts toward the limit on requests. Raises `InvalidKey`, `WrongNetwork`,
        `LimitReached` or `Unavailable` if the request is not admitted. Errors of the block pass; refusals, here or
        there, go to the audit log.
        """
        caller = Caller(tenant="", actor=_claimed(sender))
        address = client_address(sender.peer, sender.forwarded, self._proxies)
        try:
            caller = await self._caller(sender)
            _require_network(caller, address)
            admission = Admission(caller, self._store, headers)
            if counts:
                await admission.count()
            yield admission
        except OutriderError as error:
            _audit(error, sender, caller, str(address or sender.peer))
            raise

    async def _caller(self, sender: Sender) -> Caller:
        return Caller() if self._directory is None else await _authenticated(self._directory, sender.key)


def _require_network(caller: Caller, address: Address | None) -> None:
    if not caller.may_come_from(address):
        raise WrongNetwork(f"this key may not be used from {address or 'an unknown address'}")


def _claimed(sender: Sender) -> str:
    """The key that a request says it has, before it is checked."""
    parsed = parse_key(sender.key)
    return f"key {parsed[0]}" if parsed else ""


def _audit(error: OutriderError, sender: Sender, caller: Caller, address: str) -> None:
    event = next((event for kind, event in _AUDITED if isinstance(error, kind)), None)
    if event is not None:
        audit(
            event,
            outcome="refused",
            actor=caller.actor,
            tenant=caller.tenant,
            door=sender.door,
            address=address,
            reason=error.message,
            request=sender.request,
        )


async def _authenticated(directory: Directory, text: str) -> Caller:
    """The caller with the key ``text``; only an error for the key's owner says what is wrong with the key."""
    parsed = parse_key(text)
    if parsed is None:
        raise InvalidKey(f"this is no API key: {_HOW_TO_SEND}" if text else f"an API key is required: {_HOW_TO_SEND}")
    id_, secret = parsed
    key = await directory.key(id_)
    if key is None or not key.matches(secret):
        raise InvalidKey(f"the API key sk-{id_}-... is not valid")
    if (state := key.state(time.time())) != "active":
        raise InvalidKey(f"the API key sk-{id_}-... is {state}")
    tenant = await directory.tenant(key.tenant)
    if tenant is None:
        raise InvalidKey(f"the API key sk-{id_}-... is of no tenant")
    return make_caller(tenant, key)


def client_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> Address | None:
    """The address of the client, behind any trusted proxies; None if it is not an IP address.

    ``peer`` is the other end of the connection. ``forwarded`` are the values of ``X-Forwarded-For``, to which each
    proxy appends the address that it received the request from; an entry counts if a ``trusted`` proxy appended it.
    """
    address = _address(peer)
    hops = [part for value in forwarded for part in value.split(",")]
    while hops and address is not None and any(address in network for network in trusted):
        address = _address(hops.pop())
    return address


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
