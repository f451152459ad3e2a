"""Who may come in, whatever the front door: keys, networks and the limit on requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_network
from typing import ClassVar

import msgspec
from outrider.gateway.admission.addresses import client_address
from outrider.gateway.admission.caller import Caller, caller
from outrider.gateway.admission.directory import Directory
from outrider.gateway.admission.limit_store import LimitStore
from outrider.gateway.admission.reservation import Admission
from outrider.mesh.errors import PermissionDenied, Unauthenticated
from outrider.wire.tenants import parse_key

_HOW = "send one as `Authorization: Bearer sk-...`"


class InvalidKey(Unauthenticated):
    """There is no key, or none that is valid now."""

    type: ClassVar[str] = "invalid_request_error"
    reason: ClassVar[str] = "invalid_api_key"


class WrongNetwork(PermissionDenied):
    """The key is right, and may not be used from there."""

    reason: ClassVar[str] = "ip_not_allowed"


class Visitor(msgspec.Struct, frozen=True):
    """Who asks: the address that has connected, if there is one, and what it says of itself, as HTTP's headers do."""

    peer: str = ""
    authorization: str = ""
    api_key: str = ""
    forwarded: Sequence[str] = ()

    @property
    def shown(self) -> str:
        """The key that is shown, or an empty string."""
        scheme, _, key = self.authorization.partition(" ")
        return key.strip() if scheme.lower() == "bearer" else self.api_key


class Entrance:
    """Lets requests in. Without a ``directory`` everybody is the same caller, who has no limits."""

    def __init__(self, store: LimitStore, directory: Directory | None, trusted_proxies: Sequence[str]) -> None:
        self._store, self._directory = store, directory
        self._proxies = [ip_network(network) for network in trusted_proxies]

    async def admit(self, visitor: Visitor, headers: dict[str, str], *, counts: bool) -> Admission:
        """The admission of one request, which ``counts`` or not; what is told of limits is put into ``headers``.

        `InvalidKey`, `WrongNetwork`, `LimitReached` or `Unavailable` where it is not let in.
        """
        admission = Admission(await self._caller(visitor), self._store, headers)
        if counts:
            await admission.count()
        return admission

    async def _caller(self, visitor: Visitor) -> Caller:
        if self._directory is None:
            return Caller()
        found = await _authenticated(self._directory, visitor.shown)
        address = client_address(visitor.peer, visitor.forwarded, self._proxies)
        if not found.may_come_from(address):
            raise WrongNetwork(f"this key may not be used from {address or 'an unknown address'}")
        return found


async def _authenticated(directory: Directory, text: str) -> Caller:
    """Who shows the key ``text``; what is wrong with one is told to nobody but its owner."""
    parsed = parse_key(text)
    if parsed is None:
        raise InvalidKey(f"this is no API key: {_HOW}" if text else f"an API key is required: {_HOW}")
    id_, secret = parsed
    key = await directory.key(id_)
    if key is None or not key.opens(secret):
        raise InvalidKey(f"the API key sk-{id_}-... is not valid")
    if (state := key.state(time.time())) != "active":
        raise InvalidKey(f"the API key sk-{id_}-... is {state}")
    tenant = await directory.tenant(key.tenant)
    if tenant is None:
        raise InvalidKey(f"the API key sk-{id_}-... is of no tenant")
    return caller(tenant, key)
