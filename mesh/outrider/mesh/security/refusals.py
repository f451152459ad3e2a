"""Why a process cannot be reached over TLS, in one sentence for the log."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from datetime import UTC, datetime

from outrider.mesh.security.certificates import Certificates, expired
from outrider.mesh.security.contexts import client_context
from outrider.mesh.security.identity import Identity

_ASK_S = 3.0
_ADDRESS = re.compile(r"\[?(?P<host>[^\]]+)\]?:(?P<port>\d+)")
_EXPIRED, _WRONG_NAME = 10, 62  # X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_HOSTNAME_MISMATCH


async def refusal(address: str, kind: str, certificates: Certificates) -> str | None:
    """Why ``address`` and this process do not accept each other's certificates; None if they do, or nothing answers.

    The sentence comes from a handshake of its own, since gRPC's errors name no cause where the peer refuses.
    """
    if datetime.now(UTC) >= certificates.material.ends:
        return expired(certificates.files, certificates.material)
    peer = f"the {kind or 'process'} at {address}"
    try:
        async with asyncio.timeout(_ASK_S):
            accepted = await _greet(address, kind, certificates)
        return None if accepted else f"{peer} refused the certificate of this process, or has none of its kind"
    except ssl.SSLCertVerificationError as error:
        return why_untrusted(error, peer, kind)
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return f"{peer} does not speak TLS"
        return f"{peer} refused the certificate of this process: {error.reason}"
    except (OSError, TimeoutError):
        return None


async def _greet(address: str, kind: str, certificates: Certificates) -> bool:
    """Whether the server begins to speak HTTP/2 after the handshake; it ends the connection if it refuses."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return True
    name = Identity(certificates.identity.trust_domain, kind).server_name if kind else match["host"]
    context = client_context(certificates.material)
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(match["host"], int(match["port"]), ssl=context, server_hostname=name)
    try:
        return bool(await reader.read(1))
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def why_untrusted(error: ssl.SSLCertVerificationError, peer: str, kind: str) -> str:
    """Why this process does not accept the certificate of ``peer``, which should be of ``kind``: one sentence."""
    if error.verify_code == _EXPIRED:
        return f"the certificate of {peer} has expired"
    if error.verify_code == _WRONG_NAME:
        return f"the certificate of {peer} is not that of a {kind or 'server of this name'}"
    return f"the certificate of {peer} is not trusted: {error.verify_message}"
