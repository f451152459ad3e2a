"""Chooses for each job an answer of its own, one that is being generated, or a cached one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from outrider.gateway import metrics
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import AnswerStream
from outrider.gateway.stream.answer_cache import AnswerCache, CachedStream, repeatable
from outrider.gateway.stream.coalesced import CoalescedStream
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.shared_generation import SharedGeneration
from outrider.gateway.stream.token_stream import TokenStream
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.ids import pack_ids

Generate = Callable[[Job], TokenStream]


class AnswerPool:
    """The answers that jobs may share: those that are being generated, and those in the cache.

    ``generate`` makes the stream of an answer that is generated for one job alone.
    """

    def __init__(self, settings: GatewaySettings, reader: FrameReader, generate: Generate) -> None:
        self._settings, self._reader, self._generate = settings, reader, generate
        self._running: dict[tuple[object, ...], SharedGeneration] = {}
        self._cache = AnswerCache(settings.cache_bytes, settings.cache_s)

    def stream(self, job: Job) -> AnswerStream:
        """The stream to read the answer to ``job`` from."""
        if not job.shareable or not (self._settings.coalesce or self._settings.cache_bytes):
            return self._generate(job)
        key = answer_key(job)
        if (frames := self._cache.get(key)) is not None:
            metrics.shared.labels("cache").inc()
            return CachedStream(job, frames)

        def generate_alone() -> TokenStream:
            return self._generate(job)

        running = self._running.get(_running_key(key, job)) if self._settings.coalesce else None
        if running is not None:
            metrics.shared.labels("flight").inc()
            return CoalescedStream(job, running, generate_alone, self._reader, leads=False)
        shared = self._begin(key, job)
        return CoalescedStream(job, shared, generate_alone, self._reader, leads=True)

    def forget(self, tenant: str) -> int:
        """Drops a tenant's answers from the cache; returns their number."""
        return self._cache.forget(tenant)

    def expire(self) -> None:
        """Drops the answers in the cache whose time is over."""
        self._cache.expire()

    def _begin(self, key: bytes, job: Job) -> SharedGeneration:
        """Starts a generation that later jobs may share."""
        place = _running_key(key, job)

        def on_end(generation: SharedGeneration) -> None:
            if self._running.get(place) is generation:
                del self._running[place]
            if self._settings.cache_fast or repeatable(generation.member):
                self._cache.put(key, generation.frames, job.caller.tenant)

        self._running[place] = shared = SharedGeneration(self._generate(job), on_end)
        return shared


def answer_key(job: Job) -> bytes:
    """Equal for two jobs exactly if they ask for the same tokens in the same form, with one tenant, model and filters.

    They have one salt as well. The seed does not count at temperature 0, nor does a prediction at all: it changes the
    speed alone.
    """
    sampling = SamplingParams()
    sampling.CopyFrom(job.sampling)
    if sampling.HasField("temperature") and not sampling.temperature:
        sampling.seed = 0
    parts = (
        job.caller.tenant.encode(),
        job.served.name.encode(),
        job.served.vocabulary.encode(),
        pack_ids(job.prompt),
        sampling.SerializeToString(deterministic=True),
        job.speculation.SerializeToString(deterministic=True),
        "\0".join(job.filters).encode(),
        job.cache_salt.encode(),
    )
    name = hashlib.blake2b(digest_size=32)
    for part in parts:
        name.update(len(part).to_bytes(8, "little") + part)
    return name.digest()


def _running_key(key: bytes, job: Job) -> tuple[object, ...]:
    """Jobs share a running generation only at equal priority and weight: else one could wait longer than alone."""
    return key, job.priority, job.caller.weight
