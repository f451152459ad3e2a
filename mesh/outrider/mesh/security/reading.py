"""Reads and checks certificates. It needs `cryptography`, so that processes without TLS do not import it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from outrider.mesh.errors import ConfigError
from outrider.mesh.security.certificates import Files, Material, expired
from outrider.mesh.security.identity import Identity, trust_domain


def read(files: Files) -> Material:
    """The contents of ``files``.

    Raises:
        ConfigError: a file cannot be read or is damaged, the certificate is not valid at present, or the key is that
            of another certificate.
    """
    content = {setting: _bytes(setting, path) for setting, path in files.named.items()}
    certificate_setting, key_setting, *authorities_setting = files.named
    leaf = _certificates(certificate_setting, files.certificate, content[certificate_setting])[0]
    for setting in authorities_setting:
        _certificates(setting, files.named[setting], content[setting])
    _require_match(files, leaf, content[key_setting])
    material = Material(
        content[certificate_setting],
        content[key_setting],
        content[authorities_setting[0]] if authorities_setting else None,
        identity_of(leaf),
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )
    _require_valid(files, material)
    return material


def identity_of(certificate: x509.Certificate) -> Identity | None:
    """The identity in a certificate: SPIFFE demands that it be the only URI."""
    uris = _uris(certificate)
    return Identity.parse(uris[0]) if len(uris) == 1 else None


def trust_domain_of(authorities: Path) -> str:
    """The trust domain of the first authority in a file; empty for one whose certificate does not say.

    Raises:
        ConfigError: the file cannot be read, or is no certificate.
    """
    first = _certificates("tls_ca", authorities, _bytes("tls_ca", authorities))[0]
    uris = _uris(first)
    return trust_domain(uris[0]) if len(uris) == 1 else ""


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _bytes(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting} = {str(path)!r} cannot be read: {error.strerror}") from None


def _certificates(setting: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ConfigError(f"{setting} = {str(path)!r} is no certificate in PEM") from None


def _require_match(files: Files, leaf: x509.Certificate, key: bytes) -> None:
    try:
        public, named = load_pem_private_key(key, None).public_key(), leaf.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{files.setting}_key = {str(files.key)!r} is no private key in PEM without a password"
        ) from None
    if public != named:
        raise ConfigError(
            f"{files.setting}_key = {str(files.key)!r} is not the key of the certificate {str(files.certificate)!r}"
        )


def _require_valid(files: Files, material: Material) -> None:
    now = datetime.now(UTC)
    if now >= material.ends:
        raise ConfigError(expired(files, material))
    if now < material.begins:
        raise ConfigError(
            f"{files.setting}_certificate = {str(files.certificate)!r} is not valid before "
            f"{material.begins:%Y-%m-%d %H:%M:%S} UTC"
        )
