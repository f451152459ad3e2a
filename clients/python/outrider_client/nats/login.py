"""How a client proves to NATS who it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nkeys


def login(seed: Path) -> dict[str, Any]:
    """Options of `nats.connect` for the user whose seed is in the file: its nkey, and its own inbox."""
    text = seed.read_text(encoding="ascii").strip()
    public_key = nkeys.from_seed(text.encode()).public_key.decode()
    return {"nkeys_seed_str": text, "inbox_prefix": f"_INBOX.client.{public_key}"}
