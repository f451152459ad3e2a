"""How a client proves to NATS who it is, and knows NATS."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats.errors
import nkeys
from nats.aio.client import Client


class Connection(Client):
    """nats-py's client, which would go on in the clear with a ``tls://`` server that does not ask for TLS."""

    def _connect_command(self) -> bytes:
        wants_tls = self._current_server is not None and self._current_server.uri.scheme == "tls"
        if wants_tls and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the server does not speak TLS, and its URL asks for it")
        return super()._connect_command()


_DIGITS = 32


def login(servers: Sequence[str], seed: Path | None, api_key: str | None) -> dict[str, Any]:
    """Options of `nats.connect`: what proves who the client is, and its own inbox.

    A ``seed`` counts before a user and password in the URLs of ``servers``, and these before the ``api_key``.
    """
    if seed is not None:
        text = seed.read_text(encoding="ascii").strip()
        public_key = nkeys.from_seed(text.encode()).public_key.decode()
        return {"nkeys_seed_str": text, "inbox_prefix": _inbox(public_key)}
    if api_key and not any(urlsplit(server).username for server in servers):
        digest = hashlib.sha256(api_key.encode()).hexdigest()[:_DIGITS]
        return {"token": api_key, "inbox_prefix": _inbox(digest)}
    return {}


def _inbox(name: str) -> str:
    return f"_INBOX.client.{name}"


def trust(ca: Path) -> dict[str, Any]:
    """Options of `nats.connect` that trust the authorities in the file, and no others."""
    return {"tls": ssl.create_default_context(cafile=ca)}
