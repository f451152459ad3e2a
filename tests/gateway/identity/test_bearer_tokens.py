"""Tokens of real issuers, forged ones, and issuers that change their keys or are away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from outrider.gateway.identity.bearer_tokens import LEEWAY_S, MOST_CHARACTERS, BearerTokens
from outrider.gateway.identity.documents import MOST_BYTES
from outrider.gateway.identity.refusals import EndedKey, WrongKey
from outrider.gateway.identity.signing_keys import RETRY_S
from outrider.gateway.settings import GatewaySettings, Issuer
from outrider.mesh.config import load
from outrider.mesh.errors import ConfigError, Unavailable

from tests.gateway.issuer import AUDIENCE, KEYS, LocalIssuer

STALE_S = 300.0
KEYS_PATH, DISCOVERY = "/keys", "/.well-known/openid-configuration"
TWICE = ",".join(['{"issuer":"https://a.example","audience":"a"}'] * 2)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def issuers() -> Iterator[tuple[LocalIssuer, LocalIssuer]]:
    """Two issuers, each with a key for every algorithm; both have a key called shared."""
    made = LocalIssuer(), LocalIssuer()
    for issuer in made:
        for algorithm in KEYS:
            issuer.add_key(algorithm, algorithm)
        issuer.add_key("shared")
        issuer.start()
    yield made
    for issuer in made:
        issuer.stop()


@pytest.fixture
async def tokens(issuers: tuple[LocalIssuer, LocalIssuer]) -> AsyncIterator[BearerTokens]:
    made = BearerTokens([Issuer(issuer=issuer.url, audience=AUDIENCE) for issuer in issuers], STALE_S)
    yield made
    await made.close()


@pytest.fixture
def changing() -> Iterator[LocalIssuer]:
    """An issuer for one test, with one key."""
    issuer = LocalIssuer()
    issuer.add_key("first")
    issuer.start()
    yield issuer
    issuer.stop()


def _tokens(issuer: LocalIssuer, clock: Clock) -> BearerTokens:
    return BearerTokens([Issuer(issuer=issuer.url, audience=AUDIENCE)], STALE_S, clock)


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None = None) -> str:
    signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{'' if secret is None else _part(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_token_of_each_algorithm_opens(
    issuers: tuple[LocalIssuer, LocalIssuer], tokens: BearerTokens, algorithm: str
) -> None:
    text = issuers[1].token(algorithm, aud=["other", AUDIENCE], tenant="acme")
    token = await tokens.verify(text)
    assert (token.issuer.issuer, token.subject, token.claims["tenant"]) == (issuers[1].url, "alice", "acme")
    assert await tokens.verify(text) is token


async def test_forged_tokens_are_refused(issuers: tuple[LocalIssuer, LocalIssuer], tokens: BearerTokens) -> None:
    ours, theirs = issuers
    claims = {"iss": ours.url, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 60}
    public = ours.keys["RS256"][1].public_key()
    secrets = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(ours.jwk("RS256")).encode(),
        b"",
    ]
    head, body, signature = ours.token("ES256").split(".")
    other_body = _part(json.dumps(claims | {"tenant": "other"}).encode())
    wrong = [
        _forged({"alg": "none", "kid": "RS256"}, claims),
        _forged({"alg": "None"}, claims),
        _forged({"kid": "RS256"}, claims),
        *(_forged({"alg": "HS256", "kid": "RS256"}, claims, secret) for secret in secrets),
        theirs.token("shared", iss=ours.url),
        theirs.token("EdDSA", iss=ours.url, headers={"jwk": theirs.jwk("EdDSA")}),
        theirs.token("EdDSA", iss=ours.url, headers={"jku": f"{theirs.url}/keys"}),
        theirs.token("EdDSA", iss=ours.url, headers={"kid": "RS256"}),
        ours.token("EdDSA", headers={"kid": ""}),
        ours.token("EdDSA", headers={"kid": "unknown"}),
        ours.token("EdDSA", headers={"crit": ["x"], "x": 1}),
        f"{head}.{other_body}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
    ]
    for text in wrong:
        with pytest.raises(WrongKey):
            await tokens.verify(text)


@pytest.mark.parametrize(
    ("claims", "error", "why"),
    [
        ({"iss": "https://elsewhere.example"}, WrongKey, "an issuer that this gateway does not take"),
        ({"aud": "another"}, WrongKey, "for another audience"),
        ({"aud": []}, WrongKey, "must have the claims"),
        ({"aud": None}, WrongKey, "must have the claims"),
        ({"sub": None}, WrongKey, "must have the claims"),
        ({"exp": None}, WrongKey, "must have the claims"),
        ({"exp": "soon"}, WrongKey, "not genuine"),
        ({"exp": time.time() - LEEWAY_S - 1}, EndedKey, "has expired"),
        ({"nbf": time.time() + 86400}, WrongKey, "not valid yet"),
        ({"iat": time.time() + 86400}, WrongKey, "not valid yet"),
    ],
)
async def test_a_token_opens_in_its_time_and_for_its_audience_only(
    issuers: tuple[LocalIssuer, LocalIssuer], tokens: BearerTokens, claims: dict[str, Any], error: Any, why: str
) -> None:
    with pytest.raises(error, match=why):
        await tokens.verify(issuers[0].token("EdDSA", **claims))


async def test_a_clock_that_is_a_little_off_and_an_endless_token_do_no_harm(
    issuers: tuple[LocalIssuer, LocalIssuer], tokens: BearerTokens
) -> None:
    now = time.time()
    assert await tokens.verify(issuers[0].token("EdDSA", exp=int(now - LEEWAY_S / 2), nbf=now + LEEWAY_S / 2))
    assert (await tokens.verify(issuers[0].token("EdDSA", exp=10**400))).expires < 1e16


async def test_garbage_is_refused_in_one_way(issuers: tuple[LocalIssuer, LocalIssuer], tokens: BearerTokens) -> None:
    right = issuers[0].token("EdDSA")
    deep = _part(b'{"alg":"EdDSA","kid":' + b"[" * 3000 + b"]" * 3000 + b"}")
    list_claims = jwt.api_jws.encode(b"[1]", issuers[0].keys["EdDSA"][1], "EdDSA", {"kid": "EdDSA"})
    texts = [
        "..",
        "a.b.c",
        "é.é.é",
        f"{right}=",
        f" {right}",
        right.replace(".", "..", 1),
        f"{deep}.{deep}.",
        list_claims,
    ]
    numbers = _part(b'{"alg":"EdDSA","kid":' + b"1" * 5000 + b"}")
    unhashable = [_forged({"alg": ["EdDSA"]}, {"iss": ["x"]}), _forged({"alg": "EdDSA", "kid": {}}, {"iss": {}})]
    for text in (*texts, f"{numbers}.{numbers}.a", *unhashable, "a" * MOST_CHARACTERS + ".b.c"):
        with pytest.raises(WrongKey):
            await tokens.verify(text)


async def test_new_keys_are_found_and_withdrawn_ones_end_the_tokens_that_were_verified(changing: LocalIssuer) -> None:
    clock = Clock()
    tokens = _tokens(changing, clock)
    old = changing.token("first")
    await tokens.verify(old)
    del changing.keys["first"]
    changing.add_key("second", "ES256")
    new = changing.token("second")
    with pytest.raises(WrongKey, match="issuer does not have"):
        await tokens.verify(new)
    assert len(changing.requests) == 2
    clock.now += RETRY_S
    await asyncio.gather(*(tokens.verify(new) for _ in range(5)))
    assert len(changing.requests) == 4
    with pytest.raises(WrongKey, match="issuer does not have"):
        await tokens.verify(old)
    await tokens.close()


async def test_known_keys_go_on_for_a_while_without_the_issuer(changing: LocalIssuer) -> None:
    clock = Clock()
    tokens = _tokens(changing, clock)
    text = changing.token("first")
    changing.stop()
    with pytest.raises(Unavailable, match="does not answer"):
        await tokens.verify(text)
    changing.start()
    clock.now += RETRY_S
    assert await tokens.verify(text)
    changing.stop()
    clock.now += STALE_S
    assert await tokens.verify(text)
    assert await tokens.verify(changing.token("first", sub="bob"))
    clock.now += 1
    with pytest.raises(Unavailable):
        await tokens.verify(text)
    await tokens.close()


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (KEYS_PATH, b'{"keys":[JWK]}' + b" " * MOST_BYTES),
        (KEYS_PATH, b"[" * 10_000),
        (KEYS_PATH, b'{"keys":{}}'),
        (DISCOVERY, b'{"issuer":"https://elsewhere.example","jwks_uri":"ISSUER/keys"}'),
        (DISCOVERY, b'{"issuer":"ISSUER","jwks_uri":"http://127.1:PORT/keys"}'),
        (DISCOVERY, b'{"issuer":"ISSUER","jwks_uri":"file:///etc/passwd"}'),
        (DISCOVERY, b'{"issuer":"ISSUER","jwks_uri":"http://127.0.0.1:x/"}'),
        (DISCOVERY, b"<html>"),
    ],
)
async def test_a_document_that_is_none_leaves_the_issuer_away(
    changing: LocalIssuer, path: str, document: bytes
) -> None:
    values = {"ISSUER": changing.url, "PORT": str(changing.port), "JWK": json.dumps(changing.jwk("first"))}
    for name, value in values.items():
        document = document.replace(name.encode(), value.encode())
    changing.documents[path] = document
    tokens = _tokens(changing, Clock())
    with pytest.raises(Unavailable):
        await tokens.verify(changing.token("first"))
    await tokens.close()


async def test_keys_that_cannot_be_used_are_passed_over(changing: LocalIssuer, tmp_path: Path) -> None:
    changing.add_key("sealing")
    unusable = [
        {"kty": "oct", "k": _part(b"secret" * 8), "kid": "first"},
        changing.jwk("sealing") | {"use": "enc"},
        {"kty": "EC", "kid": "half"},
        {"kty": "?"},
        {},
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [*unusable, changing.jwk("first")]}))
    tokens = BearerTokens([Issuer(issuer=changing.url, audience=AUDIENCE, jwks=str(file))], STALE_S)
    assert await tokens.verify(changing.token("first"))
    with pytest.raises(WrongKey):
        await tokens.verify(changing.token("sealing"))
    with pytest.raises(WrongKey):
        await tokens.verify(jwt.encode({"iss": changing.url}, b"secret" * 8, "HS256", {"kid": "first"}))
    assert changing.requests == []
    await tokens.close()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"issuers": '[{"issuer":"http://login.example","audience":"a"}]', "auth": "keys"}, "is not protected"),
        (
            {"issuers": '[{"issuer":"https://a.example","audience":"a","jwks":"ftp://b"}]', "auth": "keys"},
            "not protected",
        ),
        ({"issuers": '[{"issuer":"https://a.example"}]', "auth": "keys"}, "audience"),
        ({"issuers": '[{"issuer":"https://a.example","audience":"a","alg":"none"}]', "auth": "keys"}, "alg"),
        ({"issuers": '[{"issuer":"https://a.example","audience":"a"}]'}, 'only taken with auth = "keys"'),
        ({"issuers": f"[{TWICE}]", "auth": "keys"}, "named once"),
    ],
)
def test_an_issuer_that_cannot_be_trusted_is_a_wrong_setting(flags: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(GatewaySettings, "gateway", flags=flags)
