"""Certificates of tests, from a real authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.directory import Directory
from outrider.mesh.security import Certificates, Files

TRUST_DOMAIN = "outrider.internal"
DAY = timedelta(days=1)
EXPIRED = timedelta(seconds=-1)
LOCAL = ("localhost", "127.0.0.1")


class Certified:
    """An authority in ``path``, and the certificates that it has issued."""

    def __init__(self, path: Path, trust_domain: str = TRUST_DOMAIN) -> None:
        self.directory = Directory(path)
        self.directory.init(trust_domain, timedelta(days=30))

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.directory.path / "ca.crt"

    def issue(self, kind: str, lifetime: timedelta = DAY, name: str = "") -> Files:
        """Issues a certificate; the files of an earlier one of that name are replaced."""
        name = name or kind
        path = self.directory.path
        self.directory.issue(name, Issue(kind, LOCAL, lifetime))
        return Files("tls", path / f"{name}.crt", path / f"{name}.key", self.ca)

    def certificates(self, kind: str) -> Certificates:
        """A new certificate as a process of ``kind`` reads it."""
        return Certificates(self.issue(kind), kind)

    def rotate(self) -> None:
        """Renews all certificates."""
        self.directory.rotate(datetime.now(UTC), every=True)

    @property
    def settings(self) -> dict[str, str]:
        """The settings by which every service finds its certificate."""
        path = self.directory.path
        return {
            "tls_certificate": str(path / "{kind}.crt"),
            "tls_key": str(path / "{kind}.key"),
            "tls_ca": str(self.ca),
        }
