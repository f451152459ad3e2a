"""The files that settings name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from outrider.mesh.config import Settings
from outrider.mesh.errors import ConfigError
from outrider.mesh.security.certificates import Certificates, Files

_KIND = "{kind}"


def mesh_certificates(settings: Settings, kind: str) -> Certificates | None:
    """The certificates with which a service of ``kind`` calls and is called; None where the settings name none.

    Raises:
        ConfigError: what `named_files` and `Certificates` raise.
    """
    paths = {
        "tls_certificate": settings.tls_certificate,
        "tls_key": settings.tls_key,
        "tls_ca": settings.tls_ca,
    }
    files = named_files("tls", paths, kind)
    return Certificates(files, kind) if files else None


def named_files(setting: str, paths: Mapping[str, str], kind: str) -> Files | None:
    """The files at ``paths``: by settings, those of a certificate, its key and perhaps authorities. None without paths.

    ``{kind}`` in a path stands for the kind of the service, so that one table can hold the paths of all services.

    Raises:
        ConfigError: some paths are given and others are not.
    """
    missing = [name for name, text in paths.items() if not text]
    if len(missing) == len(paths):
        return None
    if missing:
        given = next(name for name, text in paths.items() if text)
        raise ConfigError(f"{given} is set and {missing[0]} is not: {' and '.join(paths)} go together")
    return Files(setting, *(Path(text.replace(_KIND, kind)).expanduser() for text in paths.values()))
