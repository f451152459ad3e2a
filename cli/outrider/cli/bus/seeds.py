"""Seeds of nkeys, in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import nkeys
from outrider.mesh.errors import ConfigError

_SEED_BYTES = 32


def make_seed(path: Path, prefix: int = nkeys.PREFIX_BYTE_USER) -> None:
    """Writes the seed of a new user, or of what ``prefix`` says, unless ``path`` has one."""
    make_secret(path, nkeys.encode_seed(secrets.token_bytes(_SEED_BYTES), prefix))


def make_secret(path: Path, content: bytes) -> None:
    """Writes a file that only its owner reads, unless ``path`` exists."""
    with suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as secret:
            secret.write(content)


def renew_seed(path: Path) -> None:
    """Writes the seed of a new user in the place of the one in ``path``, in one step."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    make_seed(new)
    new.replace(path)


def public_key(path: Path) -> str:
    """The public key that belongs to the seed in ``path``; `ConfigError` if there is none."""
    try:
        return str(nkeys.from_seed(path.read_bytes().strip()).public_key.decode())
    except (OSError, ValueError, nkeys.NkeysError) as error:
        raise ConfigError(f"{path} holds no seed of an nkey: {error or 'it is malformed'}") from None


class Retired:
    """Public keys of seeds that were replaced and are still valid: in `retired.json` of a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "retired.json"

    def add(self, user: str, key: str, seconds: float) -> None:
        """Has the ``key`` of ``user`` be valid for some more seconds."""
        entries = [*self._valid(), _Entry(user, key, time.time() + seconds)]
        self._path.write_bytes(msgspec.json.encode(entries))

    def valid(self) -> Iterator[tuple[str, str]]:
        """User and key of each entry that is still valid."""
        return ((entry.user, entry.key) for entry in self._valid())

    def _valid(self) -> list[_Entry]:
        if not self._path.exists():
            return []
        now = time.time()
        return [entry for entry in msgspec.json.decode(self._path.read_bytes(), type=list[_Entry]) if entry.until > now]


class _Entry(msgspec.Struct):
    user: str
    key: str
    until: float
