"""Which requests ask for the very same tokens."""

from __future__ import annotations

import hashlib

from outrider.gateway.routing.verifiers import Job
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.ids import pack_ids


def sameness(job: Job) -> bytes:
    """Equal for two jobs if and only if they are of one tenant and model and ask for the same tokens, told alike.

    Likeliest tokens are the same whatever the seed.
    """
    sampling = SamplingParams()
    sampling.CopyFrom(job.sampling)
    if not sampling.temperature:
        sampling.seed = 0
    parts = (
        job.caller.tenant.encode(),
        job.served.name.encode(),
        job.served.vocabulary.encode(),
        pack_ids(job.prompt),
        sampling.SerializeToString(deterministic=True),
        job.speculation.SerializeToString(deterministic=True),
    )
    name = hashlib.blake2b(digest_size=32)
    for part in parts:
        name.update(len(part).to_bytes(8, "little") + part)
    return name.digest()
