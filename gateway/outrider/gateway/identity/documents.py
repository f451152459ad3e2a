"""Reads the documents of issuers: OpenID Connect Discovery 1.0, and JSON Web Key Sets (RFC 7517)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from outrider.gateway.settings import Issuer, require_protected
from outrider.mesh.errors import Unavailable

T = TypeVar("T")

MOST_BYTES = 256 << 10
"""Most bytes of a document."""
_MOST_S = 5.0
_DISCOVERY = "/.well-known/openid-configuration"
_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}


class _Discovered(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


async def read_keys(issuer: Issuer, http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The JSON Web Keys of ``issuer``.

    Raises `Unavailable` if a document cannot be read within 5 s, is larger than `MOST_BYTES`, or is none of its kind.
    """
    place = issuer.jwks or await _discovered(issuer, http)
    data = await (_fetch(place, http) if "://" in place else asyncio.to_thread(_read_file, place))
    return _decoded(place, data, _KeySet).keys


async def _discovered(issuer: Issuer, http: httpx.AsyncClient) -> str:
    """The URL of the keys; the document has to name the very issuer (4.3)."""
    url = issuer.issuer.rstrip("/") + _DISCOVERY
    found = _decoded(url, await _fetch(url, http), _Discovered)
    if found.issuer != issuer.issuer:
        raise Unavailable(f"{url} is of another issuer, {found.issuer}")
    return found.jwks_uri


async def _fetch(url: str, http: httpx.AsyncClient) -> bytes:
    """The answer to a GET. Redirects are not followed, and bytes are counted before they are unpacked."""
    try:
        require_protected(url)
        async with asyncio.timeout(_MOST_S), http.stream("GET", url, headers=_HEADERS) as response:
            if response.status_code != httpx.codes.OK:
                raise Unavailable(f"{url} answers with status {response.status_code}")
            return await _bounded(url, response)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise Unavailable(f"{url} does not answer: {type(error).__name__}") from None
    except ValueError as error:
        raise Unavailable(str(error)) from None


async def _bounded(url: str, response: httpx.Response) -> bytes:
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) > MOST_BYTES:
            raise Unavailable(f"{url} has more than {MOST_BYTES} bytes")
    return bytes(data)


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from None


def _decoded(place: str, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unavailable(f"{place} is no document of an issuer: {error}") from None
