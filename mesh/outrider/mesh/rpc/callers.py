"""Who may call whom: the kinds of processes that each gRPC service of the mesh answers where services speak TLS."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from grpc.aio import ServicerContext as Context
from outrider.mesh.errors import PermissionDenied
from outrider.mesh.security import KINDS, Certificates, Identity
from outrider.mesh.telemetry import audit

EVERY = frozenset(KINDS)

MAY_CALL: Mapping[str, frozenset[str]] = {
    "outrider.v1.Tokenizer": frozenset({"gateway"}),
    "outrider.v1.Verifier": frozenset({"gateway"}),
    "outrider.v1.Proposer": frozenset({"verifier"}),
    "outrider.v1.KvCache": frozenset({"verifier"}),
    "outrider.v1.Calls": frozenset({"gateway"}),
    "grpc.reflection.v1.ServerReflection": EVERY,
    "grpc.reflection.v1alpha.ServerReflection": EVERY,
}
"""Kinds of callers by the full name of a service; nobody may call a service that is absent.

Verifiers serve `outrider.v1.KvCache` to each other, for pages of prompts. `grpc.health.v1.Health` is beside the table:
it answers every certificate of the authorities, also while the service starts. The gateway's public API has API keys.
"""

_SOCKET = "unix:"


class Callers:
    """Admits callers by the SPIFFE IDs in their certificates, which have to be of this process's trust domain."""

    def __init__(self, certificates: Certificates, may_call: Mapping[str, frozenset[str]] = MAY_CALL) -> None:
        self._certificates, self._may_call = certificates, may_call

    def admit(self, method: str, context: Context) -> None:
        """Returns if the caller may call ``method``, `/package.Service/Method`, or has come by the Unix socket.

        Raises:
            PermissionDenied: it may not.
        """
        service, trust_domain = method.split("/")[1], self._certificates.identity.trust_domain
        allowed = self._may_call.get(service, frozenset())
        identity = _identity(context)
        if identity is not None and identity.trust_domain == trust_domain and identity.kind in allowed:
            return
        if identity is None and context.peer().startswith(_SOCKET):
            return
        error = PermissionDenied(_sentence(service, identity, trust_domain, allowed))
        _audit(error, method, identity, context)
        raise error


def _identity(context: Context) -> Identity | None:
    ids = context.auth_context().get("peer_spiffe_id", ())
    return Identity.parse(ids[0].decode("ascii", "replace")) if len(ids) == 1 else None


def _audit(error: PermissionDenied, method: str, identity: Identity | None, context: Context) -> None:
    audit(
        "permission_refused",
        outcome="refused",
        actor=f"certificate {identity.uri}" if identity else "certificate without a name",
        door="mesh",
        address=unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]"),
        subject=method,
        reason=error.message,
    )


def _sentence(service: str, identity: Identity | None, trust_domain: str, allowed: frozenset[str]) -> str:
    caller = "a certificate without the name of a service" if identity is None else f"a {identity.kind}"
    if identity is not None and identity.trust_domain != trust_domain:
        caller += f" of {identity.trust_domain}"
    kinds = " or ".join(f"a {kind}" for kind in sorted(allowed))
    return f"{caller} may not call {service}: " + (f"only {kinds} of {trust_domain} may" if kinds else "nobody may")
