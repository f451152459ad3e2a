"""A directory with the seed of every user of a broker, and with the part of its configuration that lists them."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import nkeys
from outrider.cli.bus.cluster import cluster_part
from outrider.cli.bus.rights import ANONYMOUS, USERS, client_rights
from outrider.cli.bus.seeds import Retired, make_secret, make_seed, public_key, renew_seed
from outrider.mesh.access import CA
from outrider.mesh.bus import ACCOUNT, ISSUER, SEED_SUFFIX, Issuer
from outrider.mesh.bus.rights import Rights, minimal
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import BROKER, Certificates, Files
from outrider.wire.subjects import CLIENT

_SERVER = "nats-server"
_KEY_BYTES = 32
_MOST_SUBSCRIPTIONS = 1 << 16
"""Subscriptions of one connection; a gateway has one for each stream, and a few more."""
_PATIENCE_S = 1
"""Seconds that the broker waits for credentials, and for a gateway's verdict on them; services wait two."""
_HEAD = f"# Users of an Outrider mesh, written by `outrider`.\nmax_subscriptions: {_MOST_SUBSCRIPTIONS}\n"
_NOBODY = "NOBODY"


class BusDirectory:
    """The seeds and the configuration; only the owner can enter.

    A seed is in `<user>.nk`; `issuer.nk` is the key by which gateways admit clients. A broker that reads `users` serves
    the users with seeds and the clients that gateways admit, and over TLS only where `encrypt` was called.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def users(self) -> Path:
        """The part of the broker's configuration that lists the users: public keys and rights, no secrets."""
        return self.path / "users.conf"

    @property
    def encryption(self) -> Path:
        """The part of the broker's configuration with the key of its store, if the store is to be encrypted."""
        return self.path / "encryption.conf"

    @property
    def tls(self) -> Path:
        """The part of the broker's configuration that names its certificate; absent where it talks in the clear."""
        return self.path / "tls.conf"

    @property
    def cluster(self) -> Path:
        """The part of the broker's configuration that names the servers of its cluster; absent where it is alone."""
        return self.path / "cluster.conf"

    @property
    def authorities(self) -> Path:
        """A link to the authorities by which clients know the broker; absent where it talks in the clear."""
        return self.path / CA

    @property
    def scheme(self) -> str:
        """That of the broker's URL."""
        return "tls" if self.tls.exists() else "nats"

    @property
    def pid(self) -> Path:
        """The file into which the broker writes its process id, if it was told so."""
        return self.path / "nats.pid"

    def seed(self, user: str) -> Path:
        """The file with the seed of ``user``."""
        return self.path / f"{user}{SEED_SUFFIX}"

    @property
    def client(self) -> Path:
        """The file with the seed of clients of the only tenant of a mesh without API keys."""
        return self.seed(f"{CLIENT}-{ANONYMOUS}")

    def write(self) -> None:
        """Makes the seeds that are missing, and writes the configuration anew."""
        with _explaining(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for seed in (*map(self.seed, USERS), self.client):
                make_seed(seed)
            make_seed(self.seed(ISSUER), nkeys.PREFIX_BYTE_ACCOUNT)
            self._write_users()

    def encrypt_store(self) -> None:
        """Makes the key of the broker's store, unless there is one; the next `write` has the broker read the key."""
        with _explaining(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            cipher = f'jetstream: {{cipher: chacha, key: "{secrets.token_hex(_KEY_BYTES)}"}}\n'
            make_secret(self.encryption, cipher.encode())

    def join_cluster(self, hosts: Sequence[str], files: Files | None) -> None:
        """Makes the password of routes, unless there is one; the next `write` has the broker join those on ``hosts``.

        Routes are encrypted with ``files``, whose paths are those on each host.
        """
        with _explaining(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            password = self.path / "routes.key"
            make_secret(password, secrets.token_hex(_KEY_BYTES).encode())
            _replace(self.cluster, cluster_part(hosts, password.read_text(), files))

    def renew(self) -> None:
        """Writes new seeds in the place of all that are there; the broker then talks in the clear."""
        for old in (*self.path.glob(f"*{SEED_SUFFIX}"), self.tls, self.authorities):
            old.unlink(missing_ok=True)
        self.write()

    def encrypt(self, files: Files) -> None:
        """Has the broker show the certificate of ``files``, and take no connections in the clear.

        `ConfigError` if it is no certificate of a broker, or not valid.
        """
        Certificates(files, BROKER)
        certificate, key = (_quoted(path.resolve()) for path in (files.certificate, files.key))
        with _explaining(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self.tls, f"tls: {{cert_file: {certificate}, key_file: {key}, verify: false}}\n")
            self.authorities.unlink(missing_ok=True)
            if files.authorities:
                self.authorities.symlink_to(files.authorities.resolve())

    def rotate(self, grace_s: float) -> None:
        """Makes new seeds for all users but clients; the old ones are valid for ``grace_s`` seconds.

        The broker has to reload, and once more behind the grace and another call of `write`. `ConfigError` if nothing
        was written here before.
        """
        self._require_users()
        with _explaining(self.path):
            retired = Retired(self.path)
            for user in USERS:
                retired.add(user, public_key(self.seed(user)), grace_s)
                renew_seed(self.seed(user))
            self._write_users()

    def reload(self) -> bool:
        """Has the broker read its configuration again; False if none runs that wrote its process id here."""
        with suppress(OSError):
            if number := self._server():
                os.kill(number, signal.SIGHUP)
                return True
        return False

    def _server(self) -> int:
        """Process id of the broker; 0 without one."""
        with suppress(OSError, ValueError):
            number = int(self.pid.read_text())
            if Path(f"/proc/{number}/comm").read_text().strip() == _SERVER:
                return number
        return 0

    def _require_users(self) -> None:
        if not self.users.exists():
            raise ConfigError(f"{self.path} holds no users of a broker: `outrider bus config` writes them")

    def _write_users(self) -> None:
        entries = ",\n".join(_entry(*user) for user in self._rights())
        parts = (self.encryption, self.tls, self.cluster)
        includes = "".join(f"include ./{part.name}\n" for part in parts if part.exists())
        accounts = f"accounts: {{\n{ACCOUNT}: {{jetstream: enabled, users: [\n{entries}\n]}}\n{_NOBODY}: {{}}\n}}\n"
        callout = _callout(Issuer(self.seed(ISSUER)), public_key(self.client))
        _replace(
            self.users,
            f"{_HEAD}{includes}{accounts}authorization: {{timeout: {_PATIENCE_S}, auth_callout: {callout}}}\n",
        )

    def _rights(self) -> Iterator[tuple[str, str, Rights]]:
        """Name, public key and rights of every user."""
        for user, rights in USERS.items():
            yield user, public_key(self.seed(user)), rights
        for user, key in Retired(self.path).valid():
            yield f"{user}, until its old key ends", key, USERS[user]
        key = public_key(self.client)
        yield self.client.stem, key, client_rights(ANONYMOUS, key)


def _entry(name: str, key: str, rights: Rights) -> str:
    permissions = {"publish": minimal(rights.publish), "subscribe": minimal(rights.subscribe)}
    return f"# {name}\n{_formatted({'nkey': key, 'permissions': permissions})}"


def _callout(issuer: Issuer, known: str) -> str:
    """Has the broker ask gateways about everybody who is no user of an account.

    nats-server asks about users with seeds as well, unless they are in ``auth_users``, which cannot change while it
    runs, or in an account that is not allowed to be asked about. It wants one of each, so that there is an account of
    nobody, and the user with the key ``known``.
    """
    of = {"issuer": issuer.public_key, "xkey": issuer.xkey, "account": ACCOUNT}
    return _formatted(of | {"auth_users": [known], "allowed_accounts": [_NOBODY]})


def _formatted(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _quoted(path: Path) -> str:
    return msgspec.json.encode(str(path)).decode()


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    new.replace(path)


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Raises `ConfigError` in the place of an error of the file system."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
