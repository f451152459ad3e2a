"""What `outrider up --secure` adds: an authority and certificates for all processes, and keys for clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.directory import Directory
from outrider.cli.processes.placement import SettingsByKind
from outrider.cli.settings import Flags
from outrider.mesh.access import CA, KEY
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import BROKER, KINDS, Certificates, named_files
from outrider.mesh.telemetry import get_logger

LIFETIME = timedelta(days=1)
_AUTHORITY_LIFETIME = timedelta(days=1825)
_TRUST_DOMAIN = "outrider.internal"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ANY_HOST = ("0.0.0.0", "::")
_GATEWAY = "door"
_TLS = ("tls_certificate", "tls_key", "tls_ca")

_log = get_logger("up")


@dataclass(frozen=True)
class Secured:
    """What --secure made, in a directory that only this user can enter.

    Attributes:
        path: the directory for clients, with `CA` and `KEY`.
        authority: the directory of certificates.
        asks_for_keys: whether clients need a key.
    """

    path: Path
    authority: Directory
    asks_for_keys: bool

    @property
    def ca(self) -> Path | None:
        """The authority of the APIs; None where their certificate is one that settings name."""
        return ca if (ca := self.path / CA).exists() else None

    @property
    def key(self) -> Path:
        """The file with the key of the first tenant."""
        return self.path / KEY


def secure(log_dir: Path, host: str, settings: SettingsByKind) -> tuple[Secured, Flags]:
    """Makes certificates, and the settings that use them and ask for keys, without settings that are given."""
    path = log_dir / "secure"
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    directory = _certificates(path / "certificates", host)
    own_mesh = not any(settings[kind][key].value for kind in settings for key in _TLS)
    own_gateway = not settings["gateway"]["door_certificate"].value
    (path / CA).unlink(missing_ok=True)
    if own_gateway:
        (path / CA).symlink_to(directory.path.resolve() / "ca.crt")
    flags = {
        kind: dict(_flags_of(kind, directory.path.resolve(), own_mesh, own_gateway, settings)) for kind in settings
    }
    auth = settings["gateway"]["auth"]
    return Secured(path.resolve(), directory, auth.source == "default" or auth.value == "keys"), flags


def _certificates(path: Path, host: str) -> Directory:
    """The authority in ``path``, a new one unless one is there, with a new certificate for each kind of process.

    The certificate of the APIs is for ``host``, or for this machine's name where ``host`` stands for all addresses.
    """
    directory = Directory(path)
    if not (path / "ca.key").exists():
        directory.init(_TRUST_DOMAIN, _AUTHORITY_LIFETIME)
    for kind in KINDS:
        if kind != "client":
            directory.issue(kind, Issue(kind, _LOCAL, LIFETIME))
    outside = socket.gethostname() if host in _ANY_HOST else host
    directory.issue(_GATEWAY, Issue("gateway", tuple(dict.fromkeys((*_LOCAL, outside))), LIFETIME))
    return directory


def _flags_of(
    kind: str, directory: Path, own_mesh: bool, own_gateway: bool, settings: SettingsByKind
) -> Iterator[tuple[str, str]]:
    if own_mesh:
        yield from zip(
            _TLS, map(str, (directory / "{kind}.crt", directory / "{kind}.key", directory / "ca.crt")), strict=True
        )
    if settings[kind]["metrics_tls"].source == "default":
        yield "metrics_tls", "true"
    if kind == "gateway" and own_gateway:
        yield "door_certificate", str(directory / f"{_GATEWAY}.crt")
        yield "door_key", str(directory / f"{_GATEWAY}.key")
    if kind == "gateway" and settings[kind]["auth"].source == "default":
        yield "auth", "keys"


def broker_certificates(settings: SettingsByKind, *, required: bool) -> Certificates | None:
    """The certificate of a broker that is started: where tls_certificate names it by {kind}, if it is there.

    Raises:
        ConfigError: it is damaged, expired or of another kind; or it is ``required`` and there is none.
    """
    named = {key: settings["gateway"][key].value for key in _TLS}
    files = named_files("tls", named, BROKER)
    if files and "{kind}" in named["tls_certificate"] and files.certificate.exists():
        return Certificates(files, BROKER)
    if required:
        raise ConfigError(
            f"--secure: tls_certificate = {named['tls_certificate']!r} names no certificate of the broker: write "
            "{kind} in it, and issue one by `outrider certs issue DIR broker`"
        )
    return None


async def keep_fresh(directory: Directory, look_s: float = 60.0) -> None:
    """Renews certificates that are due, for ever; looks for them every ``look_s`` seconds."""
    while True:
        await asyncio.sleep(look_s)
        try:
            await asyncio.to_thread(directory.rotate, datetime.now(UTC))
        except ConfigError as error:
            _log.error("certificates were not renewed", why=str(error))
