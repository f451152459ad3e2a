"""Seeds of nkeys, in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import nkeys
from outrider.mesh.errors import ConfigError

_SEED_BYTES = 32


def make_seed(path: Path) -> None:
    """Writes the seed of a new user, unless ``path`` has one."""
    make_secret(path, nkeys.encode_seed(secrets.token_bytes(_SEED_BYTES), nkeys.PREFIX_BYTE_USER))


def make_secret(path: Path, content: bytes) -> None:
    """Writes a file that only its owner reads, unless ``path`` exists."""
    with suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as secret:
            secret.write(content)


def public_key(path: Path) -> str:
    """The public key that belongs to the seed in ``path``; `ConfigError` if there is none."""
    try:
        return str(nkeys.from_seed(path.read_bytes().strip()).public_key.decode())
    except (OSError, ValueError, nkeys.NkeysError) as error:
        raise ConfigError(f"{path} holds no seed of an nkey: {error or 'it is malformed'}") from None
