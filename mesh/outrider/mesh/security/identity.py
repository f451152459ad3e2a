"""The identity in a certificate: a SPIFFE ID (https://spiffe.io/docs/latest/spiffe-specs/spiffe-id/)."""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = ("gateway", "tokenizer", "proposer", "verifier", "kvcache", "broker", "client")
"""What a certificate of the mesh can be for: the kinds of services, the broker, and clients that are none."""

TRUST_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")
"""Names of trust domains. A host's name may contain them, so an underscore is not among their characters."""

_DOMAIN = re.compile(rf"spiffe://({TRUST_DOMAIN.pattern})/?")
_ID = re.compile(rf"spiffe://(?P<trust_domain>{TRUST_DOMAIN.pattern})/outrider/(?P<kind>[a-z0-9-]+)")


class Identity(NamedTuple):
    """A kind of process in a trust domain, which is a mesh, or several that trust each other."""

    trust_domain: str
    kind: str

    @classmethod
    def parse(cls, uri: str) -> Identity | None:
        """The identity that a SPIFFE ID names; None for an ID of something else than Outrider."""
        match = _ID.fullmatch(uri)
        return cls(match["trust_domain"], match["kind"]) if match else None

    @property
    def uri(self) -> str:
        """The SPIFFE ID, which is the certificate's one URI."""
        return f"spiffe://{self.trust_domain}/outrider/{self.kind}"

    @property
    def server_name(self) -> str:
        """The DNS name by which callers know a server of this kind, at whatever address it listens."""
        return f"{self.kind}.{self.trust_domain}"


def trust_domain(uri: str) -> str:
    """The trust domain in the SPIFFE ID of an authority; empty for another URI."""
    match = _DOMAIN.fullmatch(uri)
    return match[1] if match else ""
