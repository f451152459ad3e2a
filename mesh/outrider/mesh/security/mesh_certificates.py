"""The certificates that the settings common to all services name."""

from __future__ import annotations

from pathlib import Path

from outrider.mesh.config import Settings
from outrider.mesh.errors import ConfigError
from outrider.mesh.security.certificates import Certificates, Files

_KIND = "{kind}"


def mesh_certificates(settings: Settings, kind: str) -> Certificates | None:
    """The certificates with which a service of ``kind`` calls and is called; None where the settings name none.

    ``{kind}`` in a path stands for the kind of the service, so that one table can hold the paths of all services.

    Raises:
        ConfigError: some of the three settings are missing, or what `Certificates` raises.
    """
    paths = {
        "tls_certificate": settings.tls_certificate,
        "tls_key": settings.tls_key,
        "tls_ca": settings.tls_ca,
    }
    require_all(paths)
    if not settings.tls_certificate:
        return None
    certificate, key, authorities = (path_of(text, kind) for text in paths.values())
    return Certificates(Files("tls", certificate, key, authorities), kind)


def path_of(text: str, kind: str) -> Path:
    """The path that a setting of a service of ``kind`` means."""
    return Path(text.replace(_KIND, kind)).expanduser()


def require_all(paths: dict[str, str]) -> None:
    """`ConfigError` if some of the settings are given and others are not."""
    missing = [name for name, text in paths.items() if not text]
    if missing and len(missing) < len(paths):
        given = next(name for name, text in paths.items() if text)
        raise ConfigError(f"{given} is set and {missing[0]} is not: {' and '.join(paths)} go together")
