"""Checks keys and tokens: whose they are, and whether they are still valid."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from outrider.gateway.admission.caller import Caller, Credential, OwnedLimits, caller_with_key, make_caller
from outrider.gateway.admission.directory import Directory
from outrider.gateway.identity.bearer_tokens import BearerTokens, Token
from outrider.gateway.identity.refusals import EndedKey, InvalidKey, WrongKey
from outrider.mesh.telemetry import get_logger
from outrider.wire.tenants import NAME, NO_KEY, SCOPES, Key, Limits, Tenant, parse_key

SCOPE_PREFIX = "outrider:"
"""Begins the scopes of a token that are meant for Outrider: other services may read the same claim."""
_MEANT = re.compile(r"outrider(?![\w-])", re.IGNORECASE)
"""Begins what is meant for Outrider, even where the rest is misspelt."""
_HOW_TO_SEND = "send one as `Authorization: Bearer sk-...`"
_SHOWN = 80

_log = get_logger("credentials")


class Credentials:
    """Keys are looked up in ``directory``, as are the tenants of tokens; without ``tokens`` there are keys only."""

    def __init__(self, directory: Directory, tokens: BearerTokens | None) -> None:
        self._directory, self._tokens = directory, tokens

    async def caller(self, text: str) -> Caller:
        """The caller with the key or token ``text``; only an error for its owner says what is wrong with it.

        Raises `WrongKey` if it may be a guess, `EndedKey` if it was valid, `InvalidKey` if there is none, and
        `Unavailable` if it cannot be checked.
        """
        if not text:
            raise InvalidKey(f"an API key is required: {_HOW_TO_SEND}")
        if (parsed := parse_key(text)) is not None:
            return await self._with_key(*parsed)
        if self._tokens is not None and text.count(".") == 2:
            return await self._with_token(await self._tokens.verify(text))
        raise WrongKey(f"this is no API key: {_HOW_TO_SEND}")

    async def check(self, caller: Caller) -> None:
        """Raises `EndedKey` if the caller's key or token, or its tenant, is no longer valid; else as `caller`."""
        credential = caller.credential
        if credential is None:
            return
        if time.time() >= credential.expires:
            raise EndedKey("the token has expired")
        if credential.key:
            _require_active(await self._directory.key(credential.key), credential.key)
        await self._tenant(caller.tenant, credential.name)

    async def _with_key(self, id_: str, secret: str) -> Caller:
        """Does the same work whether the id is unknown or the secret is wrong."""
        key = await self._directory.key(id_)
        genuine = (key or NO_KEY).matches(secret)
        if key is None or not genuine:
            raise WrongKey(f"the API key sk-{id_}-... is not valid")
        _require_active(key, id_)
        return caller_with_key(await self._tenant(key.tenant, f"key {id_}"), key)

    async def _with_token(self, token: Token) -> Caller:
        name = token.claims.get(token.issuer.tenant_claim)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidKey(f"the token must name a tenant in the claim {token.issuer.tenant_claim}")
        owner = f"subject {token.subject[:_SHOWN]}"
        own = OwnedLimits(owner, _bucket(token), _limits(token.claims, token.issuer.limits_claim))
        scopes = _scopes(token.claims.get(token.issuer.scopes_claim, ""), owner)
        return make_caller(await self._tenant(name, owner), own, Credential(owner, expires=token.expires), scopes)

    async def _tenant(self, name: str, owner: str) -> Tenant:
        tenant = await self._directory.tenant(name)
        if tenant is None:
            raise EndedKey(f"the tenant of {owner} does not exist")
        if tenant.disabled is not None:
            raise EndedKey(f"the tenant {name} is disabled")
        return tenant


def _require_active(key: Key | None, id_: str) -> None:
    state = "deleted" if key is None else key.state(time.time())
    if state != "active":
        raise EndedKey(f"the API key sk-{id_}-... is {state}")


def _bucket(token: Token) -> str:
    """Where the limits of a token are counted: all tokens of a subject count together."""
    subject = hashlib.sha256(f"{token.issuer.issuer}\0{token.subject}".encode()).hexdigest()
    return f"subject.{subject[:32]}"


def _scopes(claim: object, owner: str) -> tuple[str, ...]:
    """The scopes in a claim: names in an array, or separated by spaces (RFC 8693, 4.2).

    A scope that is meant for Outrider and unknown is one of them: it grants nothing, and a token that has no others may
    enter nowhere.
    """
    names = claim.split() if isinstance(claim, str) else claim
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidKey("the token's scopes must be a string or an array of strings")
    meant = [name.removeprefix(SCOPE_PREFIX) for name in names if _MEANT.match(name)]
    if unknown := [name[:_SHOWN] for name in meant if name not in SCOPES]:
        known = ", ".join(SCOPE_PREFIX + scope for scope in SCOPES)
        _log.warning("a token has unknown scopes, which grant nothing", owner=owner, unknown=unknown, known=known)
    return tuple(dict.fromkeys(name[:_SHOWN] for name in meant))


def _limits(claims: Mapping[str, Any], name: str) -> Limits:
    values = claims.get(name, {}) if name else {}
    try:
        limits = msgspec.convert(values, Limits)
    except msgspec.ValidationError as error:
        raise InvalidKey(f"the token's claim {name} holds no limits: {error}") from None
    if unknown := set(values) - set(Limits.__struct_fields__):
        raise InvalidKey(f"the token's claim {name} holds no limit {min(unknown)}")
    return limits
