"""The certificates of brokers that a process accepts."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from outrider.mesh.errors import ConfigError
from outrider.mesh.security.certificates import Certificates
from outrider.mesh.security.identity import Identity

BROKER = "broker"


class Trust(NamedTuple):
    """Which certificates of brokers a process accepts.

    Attributes:
        authorities: reads the present authorities in PEM; None stands for those of the system.
        name: the DNS name that a broker's certificate has to have; empty stands for the host in the URL.
    """

    authorities: Callable[[], bytes] | None = None
    name: str = ""

    def context(self) -> ssl.SSLContext:
        """The context for one connection; this process shows no certificate (decision 48).

        Raises:
            ConfigError: the authorities cannot be read.
        """
        if self.authorities is None:
            return ssl.create_default_context()
        try:
            return ssl.create_default_context(cadata=self.authorities().decode("ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the file of tls_ca cannot be read: {error}") from None


def trust_of(certificates: Certificates | None) -> Trust:
    """What a service accepts: brokers of the trust domain of its ``certificates``; without, those the system trusts."""
    if certificates is None:
        return Trust()
    name = Identity(certificates.identity.trust_domain, BROKER).server_name
    return Trust(lambda: certificates.material.authorities or b"", name)


def trust_in(authorities: Path | None) -> Trust:
    """What a command accepts that is given the file of an authority: brokers of the authority's trust domain.

    Raises:
        ConfigError: the file is no certificate.
    """
    if authorities is None:
        return Trust()
    from outrider.mesh.security.reading import trust_domain_of

    domain = trust_domain_of(authorities)
    return Trust(authorities.read_bytes, Identity(domain, BROKER).server_name if domain else "")
