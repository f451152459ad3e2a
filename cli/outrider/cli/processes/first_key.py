"""The first tenant of a mesh, and its key in a file."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
from outrider.cli.certificates.directory import replace
from outrider.cli.stores.store import connected, on_bucket
from outrider.mesh.bus import Bucket, Login
from outrider.mesh.security import Trust
from outrider.wire.tenants import BUCKET, Key, Tenant, key_entry, new_key, parse_key, tenant_entry

FIRST_TENANT = "default"
_LABEL = "outrider up"


async def keep_first_key(path: Path, url: str, login: Login, trust: Trust) -> None:
    """Makes the tenant and a key in ``path``, which only its owner can read, unless the key there is valid.

    `Unavailable` if the broker at ``url`` does not answer.
    """
    present = _read(path)

    async def work(bucket: Bucket) -> None:
        if await bucket.get(tenant_entry(FIRST_TENANT)) is None:
            tenant = Tenant(name=FIRST_TENANT, created=time.time())
            await bucket.put(tenant_entry(FIRST_TENANT), msgspec.json.encode(tenant))
        if not await _is_valid(present, bucket):
            key, text = new_key(FIRST_TENANT, time.time(), label=_LABEL)
            await bucket.put(key_entry(key.id), msgspec.json.encode(key))
            replace(path, f"{text}\n".encode(), 0o600)

    await connected(_LABEL, on_bucket(BUCKET, work), url, login, trust)


def _read(path: Path) -> tuple[str, str] | None:
    """Id and secret of the key in a file, if there is one."""
    with suppress(OSError, UnicodeDecodeError):
        return parse_key(path.read_text(encoding="ascii").strip())
    return None


async def _is_valid(present: tuple[str, str] | None, bucket: Bucket) -> bool:
    stored = await bucket.get(key_entry(present[0])) if present else None
    if present is None or stored is None:
        return False
    key = msgspec.json.decode(stored.value, type=Key)
    return key.matches(present[1]) and key.state(time.time()) == "active"
