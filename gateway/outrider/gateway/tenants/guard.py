"""What stands before OpenAI's endpoints: keys, networks and the limit on requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_network
from typing import ClassVar

from outrider.gateway.tenants.addresses import client_address
from outrider.gateway.tenants.admission import Admission
from outrider.gateway.tenants.caller import Caller, caller
from outrider.gateway.tenants.directory import Directory
from outrider.gateway.tenants.store import LimitStore
from outrider.mesh.errors import PermissionDenied, Unauthenticated
from outrider.wire.tenants import parse_key
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_GUARDED = "/v1/"
_HOW = "send one as `Authorization: Bearer sk-...`"


class InvalidKey(Unauthenticated):
    """There is no key, or none that is valid now."""

    type: ClassVar[str] = "invalid_request_error"
    reason: ClassVar[str] = "invalid_api_key"


class WrongNetwork(PermissionDenied):
    """The key is right, and may not be used from there."""

    reason: ClassVar[str] = "ip_not_allowed"


class Guard:
    """Wraps the routes, as an ASGI application: each request under ``/v1/`` gets an `Admission` in its state.

    Without a ``directory`` everybody is the same caller, who has no limits.
    """

    def __init__(
        self, routes: ASGIApp, store: LimitStore, directory: Directory | None, trusted_proxies: Sequence[str]
    ) -> None:
        self._routes, self._store, self._directory = routes, store, directory
        self._proxies = [ip_network(network) for network in trusted_proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request in; `InvalidKey`, `WrongNetwork`, `LimitReached` or `Unavailable` otherwise."""
        if scope["path"].startswith(_GUARDED):
            state = scope["state"]
            state["admission"] = admission = Admission(await self._caller(scope), self._store, state["headers"])
            if scope["method"] == "POST":
                await admission.count()
        await self._routes(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        if self._directory is None:
            return Caller()
        headers = Headers(scope=scope)
        found = await _authenticated(self._directory, _shown(headers))
        peer = scope["client"][0] if scope.get("client") else ""
        address = client_address(peer, headers.getlist("x-forwarded-for"), self._proxies)
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


def _shown(headers: Headers) -> str:
    """The key that a request shows, or an empty string."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
