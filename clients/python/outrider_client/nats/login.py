"""How a client proves to NATS who it is, and knows NATS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

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


def login(seed: Path) -> dict[str, Any]:
    """Options of `nats.connect` for the user whose seed is in the file: its nkey, and its own inbox."""
    text = seed.read_text(encoding="ascii").strip()
    public_key = nkeys.from_seed(text.encode()).public_key.decode()
    return {"nkeys_seed_str": text, "inbox_prefix": f"_INBOX.client.{public_key}"}


def trust(ca: Path) -> dict[str, Any]:
    """Options of `nats.connect` that trust the authorities in the file, and no others."""
    return {"tls": ssl.create_default_context(cafile=ca)}
