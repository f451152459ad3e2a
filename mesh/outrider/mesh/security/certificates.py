"""A certificate, its key and the authorities of its peers: read from files, checked, and read anew when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from outrider.mesh.errors import ConfigError
from outrider.mesh.security.identity import Identity
from outrider.mesh.telemetry import audit, gauge, get_logger
from outrider.mesh.telemetry.audit_record import Outcome

CHECK_S = 1.0
"""Seconds between two looks at the files."""

_log = get_logger("security")
_ends = gauge(
    "certificate_end_timestamp_seconds", "Unix time at which a certificate of this process ends.", ["setting"]
)

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Files:
    """PEM files: a certificate with those of its intermediate authorities, its key, and authorities to trust.

    ``setting`` is the beginning of the settings that name the files: ``tls`` or ``door``.
    """

    setting: str
    certificate: Path
    key: Path
    authorities: Path | None = None

    @property
    def named(self) -> dict[str, Path]:
        """The files by the settings that name them."""
        files = {f"{self.setting}_certificate": self.certificate, f"{self.setting}_key": self.key}
        return files | ({f"{self.setting}_ca": self.authorities} if self.authorities else {})


@dataclass(frozen=True)
class Material:
    """The contents of `Files`. ``identity`` is None in a certificate that names no process of Outrider."""

    certificate: bytes
    key: bytes
    authorities: bytes | None
    identity: Identity | None
    begins: datetime
    ends: datetime


class Certificates:
    """The files' present contents, `material`; `follow` renews it.

    Files that are damaged, do not belong together or have expired never replace good ones: a certificate and its key
    are two files, which cannot change at the same moment.

    Raises:
        ConfigError: at the first reading: a file cannot be read, is damaged or has expired, or the key is that of
            another certificate, or ``kind`` is given and the certificate is for another kind.
    """

    def __init__(self, files: Files, kind: str | None = None) -> None:
        self.files, self._kind = files, kind
        self._callbacks: list[Callable[[Material], object]] = []
        self._stamp = self._refused = _stamp(files)
        self._times_refused, self._told_end = 0, False
        self.material = self._read()

    @property
    def identity(self) -> Identity:
        """Who this process is.

        Raises:
            ConfigError: the certificate does not say so.
        """
        if self.material.identity is None:
            raise ConfigError(
                f"{self.files.setting}_certificate = {str(self.files.certificate)!r} has no URI "
                "spiffe://<trust domain>/outrider/<kind> among its names"
            )
        return self.material.identity

    def on_change(self, callback: Callable[[Material], object]) -> None:
        """Calls ``callback`` with new material."""
        self._callbacks.append(callback)

    async def follow(self) -> None:
        """Renews the material for ever."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.refresh()
            self._tell_end()

    def refresh(self) -> bool:
        """Reads the files again if they have changed; whether there is new material."""
        stamp = _stamp(self.files)
        if stamp == self._stamp:
            return False
        try:
            material = self._read()
        except ConfigError as error:
            self._refuse(stamp, error)
            return False
        self._stamp, self.material, self._told_end = stamp, material, False
        _log.info("a certificate was renewed", setting=self.files.setting, ends=_shown(material.ends))
        self._audit("done", f"it ends at {_shown(material.ends)}")
        for callback in self._callbacks:
            callback(material)
        return True

    def _read(self) -> Material:
        from outrider.mesh.security.reading import read

        material = read(self.files)
        if self._kind is not None:
            _require_kind(self.files, material, self._kind)
        _ends.labels(self.files.setting).set(material.ends.timestamp())
        return material

    def _refuse(self, stamp: Stamp, error: ConfigError) -> None:
        """Tells of files that are still wrong at a second look: at the first, one of two may be about to change."""
        self._times_refused = self._times_refused + 1 if stamp == self._refused else 1
        self._refused = stamp
        if self._times_refused == 2:
            _log.error("a certificate was not renewed", why=str(error))
            self._audit("failed", str(error))

    def _audit(self, outcome: Outcome, reason: str) -> None:
        audit("certificate_renewed", outcome=outcome, subject=f"{self.files.setting}_certificate", reason=reason)

    def _tell_end(self) -> None:
        if not self._told_end and datetime.now(UTC) >= self.material.ends:
            self._told_end = True
            _log.error("a certificate has expired", why=expired(self.files, self.material))


def expired(files: Files, material: Material) -> str:
    """The sentence that says when the certificate expired."""
    return (
        f"{files.setting}_certificate = {str(files.certificate)!r} expired at {_shown(material.ends)}: "
        "give a new certificate and its key"
    )


def _require_kind(files: Files, material: Material, kind: str) -> None:
    if material.identity is None or material.identity.kind != kind:
        named = material.identity.uri if material.identity else "none"
        raise ConfigError(
            f"{files.setting}_certificate = {str(files.certificate)!r} is no certificate of a {kind}: "
            f"its URI has to be spiffe://<trust domain>/outrider/{kind}, and is {named}"
        )


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _stamp(files: Files) -> Stamp:
    """What changes when a file is replaced or rewritten; zeros for a file that is absent."""
    stamps = []
    for path in files.named.values():
        try:
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)
