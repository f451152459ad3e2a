"""The public keys with which one issuer signs its tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from math import inf
from typing import Any

import httpx
from jwt import PyJWK, PyJWTError
from outrider.gateway.identity.documents import read_keys
from outrider.gateway.identity.failed_attempts import Clock
from outrider.gateway.settings import Issuer
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""Algorithms of signatures that are taken: each has a public key, so that no key of an issuer is a secret here."""
REFRESH_S = 60.0
"""Seconds after which keys are read again: a withdrawn key is refused after this time at the latest."""
RETRY_S = 10.0
"""Seconds between two reads at least, however many tokens name unknown keys."""
_MOST_KEYS = 100

_log = get_logger("issuers")


class SigningKeys:
    """The keys of ``issuer``. While it is away, keys read in the last ``stale_s`` seconds remain valid.

    Attributes:
        version: Changes whenever the keys do.
    """

    def __init__(self, issuer: Issuer, http: httpx.AsyncClient, stale_s: float, clock: Clock = time.monotonic) -> None:
        self.issuer, self._http, self._stale_s, self._clock = issuer, http, stale_s, clock
        self.version = 0
        self._documents: list[dict[str, Any]] = []
        self._keys: dict[tuple[str, str], PyJWK] = {}
        self._read_at = self._tried_at = -inf
        self._trouble: Unavailable | None = None
        self._reading: asyncio.Task[None] | None = None

    async def find(self, id_: str, algorithm: str) -> PyJWK | None:
        """The key with this id for ``algorithm``; an unknown one has the keys read again, at most every `RETRY_S`.

        Raises `Unavailable` if the issuer is away and the key is unknown, or was last read too long ago.
        """
        if (id_, algorithm) not in self._keys:
            await self.refresh()
        key = self._keys.get((id_, algorithm))
        if not self.fresh or (key is None and self._trouble is not None):
            raise Unavailable("tokens cannot be checked just now: their issuer does not answer", retry_after=RETRY_S)
        return key

    @property
    def fresh(self) -> bool:
        """Whether the keys were read in the last ``stale_s`` seconds."""
        return self._clock() - self._read_at <= self._stale_s

    async def follow(self) -> None:
        """Reads the keys again and again."""
        while True:
            await self.refresh()
            await asyncio.sleep(RETRY_S if self._trouble else REFRESH_S)

    async def refresh(self) -> None:
        """Reads the keys unless that was tried in the last `RETRY_S` seconds; all callers wait for one read."""
        if self._reading is None:
            if self._clock() - self._tried_at < RETRY_S:
                return
            self._tried_at = self._clock()
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            documents = await read_keys(self.issuer, self._http)
        except Unavailable as error:
            _log.warning("the keys of an issuer cannot be read", issuer=self.issuer.issuer, why=error.message)
            self._trouble = error
        else:
            self._trouble, self._read_at = None, self._clock()
            if documents != self._documents:
                self._documents, self._keys = documents, _usable(documents)
                self.version += 1
        finally:
            self._reading = None


def _usable(documents: Iterable[dict[str, Any]]) -> dict[tuple[str, str], PyJWK]:
    """The public keys for one of `ALGORITHMS`, by id and algorithm; all other keys are passed over."""
    keys: dict[tuple[str, str], PyJWK] = {}
    for document in list(documents)[:_MOST_KEYS]:
        if document.get("use", "sig") != "sig" or "d" in document:
            continue
        try:
            key = PyJWK(document)
        except PyJWTError:
            continue
        if key.algorithm_name in ALGORITHMS:
            keys.setdefault((str(key.key_id or ""), key.algorithm_name), key)
    return keys
