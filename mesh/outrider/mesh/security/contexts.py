"""Contexts for TLS on asyncio: of a server, whose certificate is renewed, and of a client for one connection."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

from outrider.mesh.security.certificates import Certificates, Material


class ServerContext:
    """Gives each new connection the present certificate; connections that are open keep theirs.

    Attributes:
        context: for `asyncio.loop.create_server`.
    """

    def __init__(self, certificates: Certificates, protocols: Sequence[str]) -> None:
        self._protocols = protocols
        self._present = self.context = self._made(certificates.material)
        self.context.sni_callback = self._choose
        certificates.on_change(self._renew)

    def _renew(self, material: Material) -> None:
        self._present = self._made(material)

    def _choose(self, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called in each handshake, with a name or without."""
        connection.context = self._present

    def _made(self, material: Material) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(self._protocols))
        _load(context, material)
        return context


def client_context(material: Material) -> ssl.SSLContext:
    """The context of a client that trusts the authorities of ``material`` and shows its certificate."""
    context = ssl.create_default_context(cadata=(material.authorities or b"").decode("ascii", "replace"))
    _load(context, material)
    return context


def _load(context: ssl.SSLContext, material: Material) -> None:
    """Gives ``context`` the certificate of ``material``.

    OpenSSL reads files only; one in memory has the very bytes that were checked, while the files may have changed.
    """
    with os.fdopen(os.memfd_create("certificate"), "wb") as file:
        file.write(material.key + b"\n" + material.certificate)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
