"""The directory of an authority: `ca.crt`, `ca.key`, and `<name>.crt` and `<name>.key` for each certificate."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from outrider.cli.certificates.authority import EARLIER, Authority, Issue, Pair, hosts_of
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import Identity
from outrider.mesh.security.identity import TRUST_DOMAIN
from outrider.mesh.security.reading import identity_of

AUTHORITY = "ca"
CERTIFICATE, KEY = ".crt", ".key"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9:*.-]{1,253}")
_SOON = 1 / 3
"""The part of its lifetime that a certificate has left when it is due to be renewed."""


@dataclass(frozen=True)
class Issued:
    """A certificate in the directory."""

    name: str
    identity: Identity
    hosts: list[str]
    begins: datetime
    ends: datetime

    @property
    def due(self) -> datetime:
        """When it is to be renewed."""
        return self.ends - (self.ends - self.begins) * _SOON


class Directory:
    """An authority's directory. Methods raise `ConfigError` for what they are asked and cannot do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def init(self, trust_domain: str, lifetime: timedelta) -> Authority:
        """Makes the directory and the authority; refuses to replace one, whose certificates would all be void."""
        if not TRUST_DOMAIN.fullmatch(trust_domain):
            raise ConfigError(
                f"{trust_domain!r} is no trust domain: it is written like a host, as in outrider.internal"
            )
        for ending in (CERTIFICATE, KEY):
            if (self.path / f"{AUTHORITY}{ending}").exists():
                raise ConfigError(f"{self.path} has an authority already: take another directory, or remove that one")
        authority = Authority.make(trust_domain, lifetime)
        self._write(AUTHORITY, authority.pair)
        return authority

    def authority(self) -> Authority:
        """The directory's authority."""
        try:
            pair = Pair(*((self.path / f"{AUTHORITY}{ending}").read_bytes() for ending in (CERTIFICATE, KEY)))
            authority = Authority(pair)
        except OSError as error:
            raise ConfigError(
                f"{self.path} has no authority ({error.strerror}): `outrider certs init {self.path}` makes one"
            ) from None
        except ValueError as error:
            raise ConfigError(f"the authority in {self.path} is damaged: {error}") from None
        if datetime.now(UTC) >= authority.ends:
            raise ConfigError(
                f"the authority in {self.path} ended at {authority.ends:%Y-%m-%d %H:%M} UTC: make a new one"
            )
        return authority

    def issue(self, name: str, issue: Issue) -> Issued:
        """Issues a certificate under ``name``; replaces one of that name and kind."""
        if name == AUTHORITY or not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name: it has 1 to 64 letters, digits, dots, - and _, and is not ca")
        if wrong := [host for host in issue.hosts if not _HOST.fullmatch(host)]:
            raise ConfigError(f"{wrong[0]!r} is neither a host's name nor an IP address")
        before = next((each for each in self.issued() if each.name == name), None)
        if before is not None and before.identity.kind != issue.kind:
            raise ConfigError(f"{name} is a certificate of a {before.identity.kind}: give another --name")
        self._write(name, self.authority().issue(issue))
        return next(each for each in self.issued() if each.name == name)

    def rotate(self, now: datetime, *, every: bool = False) -> list[Issued]:
        """Issues anew what is due, or ``every`` certificate, for as long as before and with the same names."""
        due = [each for each in self.issued() if every or each.due <= now]
        return [self.issue(each.name, Issue(each.identity.kind, each.hosts, _lifetime(each))) for each in due]

    def issued(self) -> list[Issued]:
        """All certificates but the authority's, by name."""
        return list(self._issued())

    def _issued(self) -> Iterator[Issued]:
        for path in sorted(self.path.glob(f"*{CERTIFICATE}")):
            if path.stem == AUTHORITY:
                continue
            try:
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except ValueError:
                raise ConfigError(f"{path} is no certificate in PEM") from None
            if (identity := identity_of(certificate)) is not None:
                hosts = hosts_of(certificate, identity)
                begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
                yield Issued(path.stem, identity, hosts, begins, ends)

    def _write(self, name: str, pair: Pair) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(self.path / f"{name}{KEY}", pair.key, 0o600)
            replace(self.path / f"{name}{CERTIFICATE}", pair.certificate, 0o644)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written to: {error.strerror}") from None


def replace(path: Path, content: bytes, mode: int) -> None:
    """Writes a whole file in one step: a reader sees the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _lifetime(issued: Issued) -> timedelta:
    return issued.ends - issued.begins - EARLIER
