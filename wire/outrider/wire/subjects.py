"""The subjects and key-value buckets of the broker that are in no other module.

Subjects of tokens are in `outrider.wire.frames`, of page news in `outrider.wire.page_news`, and of the registry in
`outrider.mesh.registry`.
"""

from __future__ import annotations

STREAMS_TAKEN = "outrider.streams.taken"
GRAMMARS_CONDEMNED = "outrider.grammars.condemned"
LIMITS_BUCKET = "outrider-limits"
BILLS_BUCKET = "outrider-bills"

HELLO = "outrider.v1.hello"
MODELS = "outrider.v1.models"
GENERATE = "outrider.v1.generate"
"""A request for any model; a further part of the subject names the model."""
RESUME = "outrider.v1.resume"
CANCEL = "outrider.v1.cancel"


def record_subject(tenant: str, request: str, part: str) -> str:
    """NATS subject of a part of a streamed request's record."""
    return f"ask.{tenant}.{request}.{part}"
