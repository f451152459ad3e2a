"""How clients and commands of this user reach a mesh that `outrider up` of the same user runs on this host."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outrider.mesh.bus import Login, find_login
from outrider.mesh.local_meshes import only_mesh
from outrider.mesh.own_directory import Links
from outrider.mesh.security import Trust, trust_in

GATEWAYS = Links("door")
"""The directories with `CA` and `KEY` of secure meshes."""
BROKERS = Links("bus")
"""The directories with seeds of the users of brokers, and with `CA` of those that speak TLS."""
CA, KEY = "ca.crt", "api.key"
_ADDRESS = "127.0.0.1:8080"


class Access(NamedTuple):
    """What a client of a gateway needs.

    Attributes:
        ca: file with the authorities to trust; None stands for those of the system.
        key: an API key; empty without one.
    """

    url: str
    ca: Path | None = None
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of requests."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def context(self) -> ssl.SSLContext:
        """The context of connections over TLS; `OSError` or `ssl.SSLError` if ``ca`` is no certificate."""
        return ssl.create_default_context(cafile=self.ca)


def access_to(url: str | None, ca: Path | None = None, key: str | None = None) -> Access:
    """The way to the mesh at ``url``; what is not given is that of `outrider up --secure`, if this user runs it there.

    Without ``url``, the mesh is the only one that `outrider up` of this user runs; without any, that at the usual
    port of this host, which may run in containers. `ConfigError` if several run.
    """
    if url is None and (mesh := only_mesh("--url")):
        url = mesh.url
    found = GATEWAYS.find(url or f"https://{_ADDRESS}")
    url = url or f"{'https' if found else 'http'}://{_ADDRESS}"
    if found is None or not url.startswith("https://"):
        return Access(url, ca, key or "")
    known = found / CA if (found / CA).exists() else None
    return Access(url, ca or known, key or _read(found / KEY))


def login_at(url: str, user: str, credentials: str = "", authorities: str = "") -> tuple[Login, Trust]:
    """How ``user`` joins the broker at ``url``: by these settings; else as one that `outrider up` of this user runs.

    Raises:
        ConfigError: the file of authorities is no certificate.
    """
    found = BROKERS.find(url)
    known = found / CA if found and (found / CA).exists() else None
    return find_login(credentials or str(found or ""), user), trust_in(Path(authorities) if authorities else known)


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="ascii").strip()
    return ""
