"""Who a process is on the broker, and how the process proves it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import nkeys
from nats.aio.client import RawCredentials
from outrider.mesh.errors import ConfigError

INBOXES = "_INBOX."
_JWT = "BEGIN NATS USER JWT"
SEED_SUFFIX = ".nk"


def inbox(user: str) -> str:
    """The prefix of the subjects on which ``user`` receives replies; nobody else may listen there."""
    return f"{INBOXES}{user}"


class Login(NamedTuple):
    """A user of the broker.

    Attributes:
        user: its name, which is a part of its inbox.
        credentials: a file with the seed of its nkey, or with a JWT and a seed as NATS's tools write them (`.creds`);
            None where the broker asks for neither.
    """

    user: str
    credentials: Path | None = None

    def read(self) -> dict[str, Any]:
        """Options of `nats.connect`; `ConfigError` if the file cannot be read or holds no credentials."""
        options: dict[str, Any] = {"inbox_prefix": inbox(self.user)}
        if self.credentials is None:
            return options
        try:
            text = self.credentials.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"nats_credentials: {self.credentials} cannot be read: {error}") from None
        if _JWT in text:
            return options | {"user_credentials": RawCredentials(text)}
        _check_seed(text, self.credentials)
        return options | {"nkeys_seed_str": text}


class Credentials:
    """What a login's file holds, read anew for each connection; what cannot be read replaces nothing.

    Raises:
        ConfigError: at the first reading, what `Login.read` raises.
    """

    def __init__(self, login: Login) -> None:
        self._login, self._last = login, login.read()

    def read(self) -> dict[str, Any]:
        """Options of `nats.connect`."""
        with suppress(ConfigError):
            self._last = self._login.read()
        return self._last


def find_login(setting: str, user: str) -> Login:
    """The login of ``user`` by the setting ``nats_credentials``: a file, or a directory with a seed for each user."""
    path = Path(setting)
    return Login(user, (path / f"{user}{SEED_SUFFIX}" if path.is_dir() else path) if setting else None)


def _check_seed(text: str, path: Path) -> None:
    try:
        nkeys.from_seed(text.strip().encode()).wipe()
    except (nkeys.NkeysError, ValueError):
        raise ConfigError(f"nats_credentials: {path} must hold the seed of an nkey, or a JWT and a seed") from None
