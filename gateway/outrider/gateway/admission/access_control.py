"""Admits requests at every API: checks who sends them, from where, to which API, and counts requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from math import ceil

import msgspec
from outrider.gateway.abuse import Source, Watch
from outrider.gateway.admission.body_turns import BodyTurns
from outrider.gateway.admission.caller import Address, Caller, Credential
from outrider.gateway.admission.credentials import Credentials
from outrider.gateway.admission.limit_store import LimitReached, LimitStore
from outrider.gateway.admission.reservation import Admission, Counters
from outrider.gateway.identity.failed_attempts import FailedAttempts
from outrider.gateway.identity.refusals import TooManyFailures, WrongKey, WrongNetwork, WrongScope
from outrider.gateway.observer.refusals import count_refusal
from outrider.gateway.observer.tenant_labels import TenantLabels
from outrider.mesh.errors import InvalidRequest, OutriderError, PermissionDenied, Unauthenticated
from outrider.mesh.telemetry import audit
from outrider.mesh.telemetry.audit_record import Event
from outrider.wire.tenants import parse_key

Network = IPv4Network | IPv6Network
_ADDRESSES = 4096
"""Addresses that are kept parsed."""


_AUDITED: tuple[tuple[type[OutriderError], Event], ...] = (
    (TooManyFailures, "locked_out"),
    (Unauthenticated, "authentication_refused"),
    (PermissionDenied, "permission_refused"),
    (LimitReached, "limit_reached"),
)

_COUNTED: tuple[type[OutriderError], ...] = (InvalidRequest, *(kind for kind, _ in _AUDITED))
"""Refusals that the watch counts."""


class Sender(msgspec.Struct, frozen=True):
    """The sender of a request: the API it came to, the peer's address if there is one, and HTTP headers or the like.

    ``api`` is one of `outrider.wire.tenants.SCOPES`; ``request`` is the request's id, for the audit log.
    """

    api: str = "http"
    peer: str = ""
    authorization: str = ""
    api_key: str = ""
    forwarded: Sequence[str] = ()
    request: str = ""

    @property
    def key(self) -> str:
        """The key or the token, or an empty string."""
        scheme, _, key = self.authorization.partition(" ")
        return key.strip() if scheme.lower() == "bearer" else self.api_key


class AccessControl:
    """Admits requests. Without ``credentials`` all requests have one caller, which has no limits and is no admin.

    ``most_failures`` is as in `FailedAttempts`.
    """

    def __init__(
        self,
        store: LimitStore,
        credentials: Credentials | None,
        trusted_proxies: Sequence[str] = (),
        most_failures: int = 20,
        watch: Watch | None = None,
        labels: TenantLabels | None = None,
    ) -> None:
        self._credentials = credentials
        self._counters = Counters(store, BodyTurns(), watch or Watch(), labels or TenantLabels([]))
        self._proxies = [ip_network(network) for network in trusted_proxies]
        self._failures = FailedAttempts(most_failures)

    @asynccontextmanager
    async def admitted(self, sender: Sender, headers: dict[str, str], *, counts: bool) -> AsyncIterator[Admission]:
        """The admission of one request; ``headers`` receives the headers that report limits.

        Only a request that ``counts`` counts toward the limit on requests. Raises `InvalidKey`, `TooManyFailures`,
        `WrongNetwork`, `WrongScope`, `LimitReached` or `Unavailable` if the request is not admitted. Errors of the
        block pass; refusals, here or there, go to the audit log and to the watch.
        """
        address = self._client_address(sender)
        caller: Caller | None = None
        try:
            caller = await self._caller(sender, address)
            _require_entry(caller, address, sender.api)
            admission = Admission(caller, self._counters, headers, str(address or sender.peer), sender.api)
            if counts:
                await admission.count()
            yield admission
        except OutriderError as error:
            self._note(error, sender, caller or Caller(tenant="", credential=Credential(_claimed(sender))))
            raise

    def _note(self, error: OutriderError, sender: Sender, caller: Caller) -> None:
        address = self.address(sender)
        count_refusal(error)
        _audit(error, sender, caller, address)
        if isinstance(error, _COUNTED):
            self._counters.watch.refused(Source(caller.actor, caller.tenant, address))

    def address(self, sender: Sender) -> str:
        """The sender's address for logs, behind any trusted proxies."""
        return str(self._client_address(sender) or sender.peer)

    async def check(self, caller: Caller) -> None:
        """As `Credentials.check`, for a caller that was admitted before."""
        if self._credentials is not None:
            await self._credentials.check(caller)

    def _client_address(self, sender: Sender) -> Address | None:
        return client_address(sender.peer, sender.forwarded, self._proxies)

    async def _caller(self, sender: Sender, address: Address | None) -> Caller:
        if self._credentials is None:
            return Caller()
        return await self._authenticated(self._credentials, sender.key, address)

    async def _authenticated(self, credentials: Credentials, text: str, address: Address | None) -> Caller:
        """The caller with the key or token ``text``. Here alone an authentication is accepted or refused.

        A valid key is accepted whatever failed before: other people may send from the same address.
        """
        try:
            return await credentials.caller(text)
        except WrongKey:
            parsed = parse_key(text)
            wait_s = self._failures.add(address, parsed[0] if parsed else None)
            if wait_s:
                raise TooManyFailures(
                    f"too many wrong keys came from this address, or for this key: try again in {ceil(wait_s)} s",
                    retry_after=wait_s,
                ) from None
            raise


def _require_entry(caller: Caller, address: Address | None, api: str) -> None:
    if not caller.may_come_from(address):
        raise WrongNetwork(f"this key may not be used from {address or 'an unknown address'}")
    if api == "admin" and not caller.admin:
        raise WrongScope("this needs a key with the scope admin: `outrider keys create --scope admin`")
    if not caller.may_use_api(api):
        raise WrongScope(f"this key may not be used over {api}, only for {', '.join(caller.scopes)}")


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
            door=sender.api,
            address=address,
            reason=error.message,
            request=sender.request,
        )


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


@lru_cache(_ADDRESSES)
def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
