"""Verifies JSON Web Tokens (RFC 7519) of configured issuers, by the advice of RFC 8725."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any

import httpx
import jwt
import msgspec
from outrider.gateway.identity.failed_attempts import Clock
from outrider.gateway.identity.refusals import EndedKey, WrongKey
from outrider.gateway.identity.signing_keys import ALGORITHMS, SigningKeys
from outrider.gateway.settings import Issuer

LEEWAY_S = 30.0
"""Seconds by which the clocks of issuers and gateways may differ."""
MOST_CHARACTERS = 8192
"""Most characters of a token."""
_MOST_CACHED = 10_000
_LAST_TIME = 1 << 53
_OPTIONS: jwt.types.Options = {"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True}
_UNVERIFIED: jwt.types.Options = {"verify_signature": False}
_FAULTS: dict[type[jwt.PyJWTError], str] = {
    jwt.InvalidAudienceError: "is for another audience",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.MissingRequiredClaimError: "must have the claims exp, iss, aud and sub",
}


class Token(msgspec.Struct, frozen=True):
    """A verified token. ``expires`` is in seconds since 1970, leeway included."""

    issuer: Issuer
    subject: str
    expires: float
    claims: dict[str, Any]


class _Verified(msgspec.Struct, frozen=True):
    """A verified token, and the version of its issuer's keys then."""

    token: Token
    keys: SigningKeys
    version: int


class BearerTokens:
    """Verifies tokens of ``issuers``; each token once, as long as its issuer's keys stay the same.

    ``stale_s`` is as in `SigningKeys`. ``clock`` is that of the keys; times in tokens are those of the day.
    """

    def __init__(self, issuers: Iterable[Issuer], stale_s: float, clock: Clock = time.monotonic) -> None:
        self._http = httpx.AsyncClient(follow_redirects=False)
        self.keys = [SigningKeys(issuer, self._http, stale_s, clock) for issuer in issuers]
        self._by_issuer = {keys.issuer.issuer: keys for keys in self.keys}
        self._verified: dict[bytes, _Verified] = {}

    async def close(self) -> None:
        """Closes the connections to issuers."""
        await self._http.aclose()

    async def verify(self, text: str) -> Token:
        """The token ``text``.

        Raises `WrongKey` if it is none of an issuer for this audience, `EndedKey` if it has expired, and `Unavailable`
        as `SigningKeys.find`.
        """
        if len(text) > MOST_CHARACTERS or not text.isascii():
            raise WrongKey(f"a token has at most {MOST_CHARACTERS} characters, all of them ASCII")
        name = hashlib.sha256(text.encode()).digest()
        known = self._verified.get(name)
        if known is None or known.version != known.keys.version or not known.keys.fresh:
            known = await self._verify(text)
            self._keep(name, known)
        if time.time() >= known.token.expires:
            raise EndedKey("the token has expired")
        return known.token

    def _keep(self, name: bytes, verified: _Verified) -> None:
        self._verified[name] = verified
        if len(self._verified) > _MOST_CACHED:
            del self._verified[next(iter(self._verified))]

    async def _verify(self, text: str) -> _Verified:
        try:
            header, claims = jwt.get_unverified_header(text), jwt.decode(text, options=_UNVERIFIED)
            keys, algorithm = self._keys_of(claims.get("iss")), _algorithm(header)
            key = await keys.find(header.get("kid", ""), algorithm)
            if key is None:
                raise WrongKey("the token is signed with a key that its issuer does not have")
            claims = jwt.decode(
                text,
                key,
                ALGORITHMS,
                _OPTIONS,
                audience=keys.issuer.audience,
                issuer=keys.issuer.issuer,
                leeway=LEEWAY_S,
            )
        except jwt.ExpiredSignatureError:
            raise EndedKey("the token has expired") from None
        except jwt.PyJWTError as error:
            raise WrongKey(f"the token {_FAULTS.get(type(error), 'is not genuine')}") from None
        expires = min(int(claims["exp"]), _LAST_TIME) + LEEWAY_S
        return _Verified(Token(keys.issuer, claims["sub"], expires, claims), keys, keys.version)

    def _keys_of(self, issuer: object) -> SigningKeys:
        if not isinstance(issuer, str) or issuer not in self._by_issuer:
            raise WrongKey("the token is of an issuer that this gateway does not take tokens of")
        return self._by_issuer[issuer]


def _algorithm(header: dict[str, Any]) -> str:
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise WrongKey(f"the token must be signed with one of {', '.join(ALGORITHMS)}")
    return str(algorithm)
