"""An authority that issues certificates for the mesh (X.509, RFC 5280, with SPIFFE IDs as names)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from outrider.mesh.security import Identity

EARLIER = timedelta(minutes=5)
"""How long before its making a certificate becomes valid: clocks of machines differ."""

_TRUST_DOMAIN = "spiffe://{}"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Issue:
    """What a certificate says. ``hosts`` are names and addresses by which clients reach the process."""

    kind: str
    hosts: Sequence[str]
    lifetime: timedelta


class Authority:
    """The certificate and the key of an authority; ``pair`` is in PEM."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = load_pem_private_key(pair.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is none of an elliptic curve")
        self._key = key

    @classmethod
    def make(cls, trust_domain: str, lifetime: timedelta) -> Authority:
        """A new authority for a trust domain."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Outrider {trust_domain}"[:64])])
        builder = _builder(name, name, key, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(authority=True), critical=True)
        names = [x509.UniformResourceIdentifier(_TRUST_DOMAIN.format(trust_domain))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(_pair(builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256()), key))

    @property
    def trust_domain(self) -> str:
        """The trust domain of all certificates that it issues."""
        names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.UniformResourceIdentifier)[0].removeprefix(_TRUST_DOMAIN.format(""))

    @property
    def ends(self) -> datetime:
        """When it ends, and with it all its certificates."""
        return self.certificate.not_valid_after_utc

    def issue(self, issue: Issue) -> Pair:
        """A certificate and a new key; it ends with the authority at the latest."""
        identity = Identity(self.trust_domain, issue.kind)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issue.kind)])
        builder = _builder(subject, self.certificate.subject, key, issue.lifetime, self.ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(_purposes(issue.kind)), critical=False)
        builder = builder.add_extension(_names(identity, issue.hosts), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return _pair(builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256()), key)


def hosts_of(certificate: x509.Certificate, identity: Identity) -> list[str]:
    """The hosts that a certificate was issued for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return [name for name in names.get_values_for_type(x509.DNSName) if name != identity.server_name] + addresses


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    lifetime: timedelta,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC).replace(microsecond=0)
    ends = now + lifetime if latest is None else min(now + lifetime, latest)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - EARLIER)
        .not_valid_after(ends)
    )


def _names(identity: Identity, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    if identity.kind != "client":
        names.append(x509.DNSName(identity.server_name))
    return x509.SubjectAlternativeName([*names, *map(_host, hosts)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _purposes(kind: str) -> list[x509.ObjectIdentifier]:
    client = [ExtendedKeyUsageOID.CLIENT_AUTH]
    return client if kind == "client" else [ExtendedKeyUsageOID.SERVER_AUTH, *client]


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
