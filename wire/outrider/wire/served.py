"""News of service: what a verifier generated for each tenant, told to the other verifiers of the model.

The amounts are divided by the tenant's weight, and each is told once. A message names at most `MOST_TENANTS` tenants;
the service of the others is told later.
"""

from __future__ import annotations

import hashlib

import msgspec

ALL_SUBJECTS = "outrider.served.*"
MOST_TENANTS = 512


class Share(msgspec.Struct, array_like=True, frozen=True):
    """Service of a tenant since the last news, and whether requests of the tenant wait at the verifier."""

    service: float
    waits: bool


class Served(msgspec.Struct, array_like=True, frozen=True):
    """The news of the verifier ``instance``, by tenant."""

    instance: str
    shares: dict[str, Share]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Served)


def encode_served(served: Served) -> bytes:
    """MessagePack bytes of ``served``."""
    return _encoder.encode(served)


def decode_served(data: bytes) -> Served:
    """The news in ``data``; `msgspec.MsgspecError` where there are none."""
    return _decoder.decode(data)


def served_subject(model: str) -> str:
    """NATS subject of the news of all verifiers of ``model``: models have no common shares."""
    return ALL_SUBJECTS.replace("*", hashlib.sha256(model.encode()).hexdigest()[:32])
