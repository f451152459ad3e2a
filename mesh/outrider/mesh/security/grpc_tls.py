"""gRPC's credentials for certificates that are renewed."""

from __future__ import annotations

import grpc
from outrider.mesh.security.certificates import Certificates, Material


def server_credentials(certificates: Certificates, *, public: bool) -> grpc.ServerCredentials:
    """Credentials of a server: each new connection gets the present certificate.

    Callers have to have a certificate of their own, unless the server is ``public``.
    """
    served = certificates.material

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        if certificates.material is served:
            return None
        served = certificates.material
        return _configuration(served, public)

    initial = _configuration(served, public)
    return grpc.dynamic_ssl_server_credentials(initial, renewed, require_client_authentication=not public)


def channel_credentials(material: Material) -> grpc.ChannelCredentials:
    """Credentials of a channel, which trusts the authorities of ``material`` and shows its certificate."""
    return grpc.ssl_channel_credentials(material.authorities, material.key, material.certificate)


def _configuration(material: Material, public: bool) -> grpc.ServerCertificateConfiguration:
    authorities = None if public else material.authorities
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], authorities)
