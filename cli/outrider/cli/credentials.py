"""Credentials of a mesh in folders: each service's own, in a folder that can be mounted for that service alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.rights import ADMIN, USERS
from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.defaults import AUTHORITY_DAYS, DAYS, LOCAL_HOSTS, TRUST_DOMAIN
from outrider.cli.certificates.directory import AUTHORITY, CERTIFICATE, KEY, Directory, replace
from outrider.mesh.bus import ISSUER
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import BROKER, KINDS, Files

SERVICES = tuple(kind for kind in KINDS if kind in USERS)
"""Kinds of processes that have both a certificate and a user."""
_BROKER = Issue(BROKER, ("nats", *LOCAL_HOSTS), timedelta(days=AUTHORITY_DAYS))
"""Clients with API keys know the broker by its host, `nats` in `compose.yaml`. It reads no renewal (decision 61)."""
_ENDS = (signal.SIGTERM, signal.SIGINT)
_SECRET, _PUBLIC = 0o600, 0o644


def hand_out(secrets: Path, folders: Path) -> None:
    """Makes what is missing in ``secrets``, renews certificates that are due, and copies to each service its own.

    ``secrets/bus`` is a directory of `outrider bus`, ``secrets/certs`` one of `outrider certs`. What is there is kept.
    The folder of a service has its seed, its certificate, the key and the certificate of the authority, and that of
    gateways also the key by which they admit clients to the broker; that of `admin` its seed and the certificate of the
    authority; that of `broker` its certificate, the key of the store and the users, the users last. The broker has to
    find its folder at this path; its certificate ends with the authority. A file that differs is replaced in one step.
    `ConfigError` for what cannot be read or written.
    """
    bus, certs = BusDirectory(secrets / "bus"), Directory(secrets / "certs")
    _certify(certs)
    bus.encrypt_store()
    bus.encrypt(_of_broker(certs, folders / BROKER))
    bus.write()
    for folder, files in _owners(bus, certs):
        for file in files:
            _copy(file, folders / folder)


def repeat(work: Callable[[], None], every_s: float) -> None:
    """Calls ``work`` now and every ``every_s`` seconds, until SIGTERM or SIGINT."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    work()
    while signal.sigtimedwait(_ENDS, every_s) is None:
        work()


def _certify(certs: Directory) -> None:
    if not (certs.path / f"{AUTHORITY}{CERTIFICATE}").exists():
        certs.init(TRUST_DOMAIN, timedelta(days=AUTHORITY_DAYS))
    issued = {each.name for each in certs.issued()}
    for issue in (*(Issue(kind, LOCAL_HOSTS, timedelta(days=DAYS)) for kind in SERVICES), _BROKER):
        if issue.kind not in issued:
            certs.issue(issue.kind, issue)
    certs.rotate(datetime.now(UTC))


def _of_broker(certs: Directory, folder: Path) -> Files:
    """The broker's certificate and key, copied to where the broker reads them."""
    for ending in (KEY, CERTIFICATE):
        _copy(certs.path / f"{BROKER}{ending}", folder)
    return Files("tls", folder / f"{BROKER}{CERTIFICATE}", folder / f"{BROKER}{KEY}")


def _owners(bus: BusDirectory, certs: Directory) -> Iterator[tuple[str, list[Path]]]:
    """Each folder, and the files that belong into it."""
    authority = certs.path / f"{AUTHORITY}{CERTIFICATE}"
    for kind in SERVICES:
        yield kind, [bus.seed(kind), authority, *(certs.path / f"{kind}{ending}" for ending in (KEY, CERTIFICATE))]
    yield "gateway", [bus.seed(ISSUER)]
    yield ADMIN, [bus.seed(ADMIN), authority]
    yield BROKER, [bus.encryption, bus.tls, bus.users]


def _copy(file: Path, folder: Path) -> None:
    target = folder / file.name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = file.read_bytes()
        if not target.exists() or target.read_bytes() != content:
            replace(target, content, _PUBLIC if target.suffix == CERTIFICATE else _SECRET)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}") from None
