"""The subjects and key-value buckets of the broker that are in no other module.

Subjects of tokens are in `outrider.wire.frames`, of page news in `outrider.wire.page_news`, of service in
`outrider.wire.served`, and of the registry in `outrider.mesh.registry`.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from outrider.wire.frames import token_subject

CALLOUT = "$SYS.REQ.USER.AUTH"
"""The broker's questions whether a client may connect (NATS's ADR-26)."""
STREAMS_TAKEN = "outrider.streams.taken"
STREAMS_ENDED = "outrider.streams.ended"
GRAMMARS_CONDEMNED = "outrider.grammars.condemned"
LIMITS_BUCKET = "outrider-limits"
BILLS_BUCKET = "outrider-bills"

HELLO = "outrider.v1.hello"
MODELS = "outrider.v1.models"
GENERATE = "outrider.v1.generate"
"""A request for any model; a further part of the subject names the model."""
RESUME = "outrider.v1.resume"
CANCEL = "outrider.v1.cancel"
REQUESTS = (HELLO, MODELS, GENERATE, f"{GENERATE}.>", RESUME, CANCEL)
"""All subjects of clients' requests."""

CLIENT = "client"
_DIGITS = 32


class ClientSubjects(NamedTuple):
    """The subjects that a client may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def client_subjects(tenant: str, inbox: str) -> ClientSubjects:
    """What a client of ``tenant`` may do: send requests, and read that tenant's answers and its own ``inbox``."""
    return ClientSubjects(REQUESTS, (token_subject(tenant, "*"), f"{inbox}.>"))


def client_user(name: str) -> str:
    """The name of a client's user: ``name`` is its public key, or the digest of its credential.

    No client can know, and listen to, the inbox of another.
    """
    return f"{CLIENT}.{name}"


def credential_digest(credential: str) -> str:
    """A name that only who has the ``credential`` can know: the beginning of its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(credential.encode()).hexdigest()[:_DIGITS]


def record_subject(tenant: str, request: str, part: str) -> str:
    """NATS subject of a part of a streamed request's record."""
    return f"ask.{tenant}.{request}.{part}"
