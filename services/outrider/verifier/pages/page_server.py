"""Computes pages for other verifiers, and sends each page as soon as it is full."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace

import grpc
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.page_cache import PageCache
from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.target import Target
from outrider.engine.worker import Inbox
from outrider.kernels.pool import KvPool
from outrider.mesh.errors import Unavailable
from outrider.v1 import kvcache_pb2 as pb
from outrider.v1 import kvcache_pb2_grpc as pb_grpc
from outrider.v1 import verifier_pb2
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.verifier.pages.cached_pages import copy_pages, page_bytes, to_bytes
from outrider.verifier.pages.metrics import HANDED
from outrider.verifier.requests.conversion import check, request_from_proto
from outrider.verifier.requests.refusals import queued
from outrider.wire.pages import page_checksum, page_key
from torch import Tensor

TIER = "prefill"
"""Tier of handed pages on the wire."""

_KEY_BYTES = 32
_MESSAGE_BYTES = 1 << 20
"""Most bytes of a message; a larger page has a message of its own."""


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Copies of consecutive pages, made by `copy_pages`, and their chain hashes."""

    hashes: list[bytes]
    copies: list[Tensor]


Deliver = Callable[[PageBatch | None], None]
"""Takes pages as they are computed, and None at the end."""


@dataclass(slots=True)
class _Recipient:
    """Receives a sequence's pages from ``next`` on."""

    next: int
    deliver: Deliver


class DeliveringCache:
    """Wraps a `PageCache`, and also delivers the pages of requests that `expect` names. In the engine's thread."""

    def __init__(self, inner: PageCache, pool: KvPool) -> None:
        self._inner, self._pool = inner, pool
        self._recipients: dict[str, _Recipient] = {}

    def expect(self, request: str, first: int, deliver: Deliver) -> None:
        """Calls ``deliver`` with a request's pages from ``first`` on, in order, until the request ends or `forget`."""
        self._recipients[request] = _Recipient(first, deliver)

    def forget(self, request: str) -> None:
        """Ends `expect`."""
        self._recipients.pop(request, None)

    def seek(self, sequence: Sequence) -> bool:
        """See `PageCache`."""
        return self._inner.seek(sequence)

    def leave(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        self._inner.leave(sequence)
        if (recipient := self._recipients.pop(sequence.request.id, None)) is not None:
            self._deliver(sequence, recipient)
            recipient.deliver(None)

    def offer(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        self._inner.offer(sequence)
        if (recipient := self._recipients.get(sequence.request.id)) is not None:
            self._deliver(sequence, recipient)

    def offer_all(self, sequence: Sequence) -> int:
        """See `PageCache`."""
        return self._inner.offer_all(sequence)

    def _deliver(self, sequence: Sequence, recipient: _Recipient) -> None:
        end = sequence.published
        if end > recipient.next:
            copies = copy_pages(self._pool, sequence.pages[recipient.next : end])
            recipient.deliver(PageBatch(sequence.hashes[recipient.next : end], copies))
            recipient.next = end


class PageServer(pb_grpc.KvCacheServicer):
    """Computes pages for other verifiers. Each fetch is a request to the engine whose answer is dropped.

    Args:
        pages: delivers the engine's pages.
        target: the model, and the limits of requests.
        inbox: inbox of the engine's thread.
        engine: computes the pages.

    Attributes:
        fingerprint: fingerprint of the pages; empty until `open`.
    """

    def __init__(self, pages: DeliveringCache, target: Target, inbox: Inbox, engine: Engine) -> None:
        self._pages, self._inbox, self._engine, self._limits = pages, inbox, engine, target.model_limits
        pool = target.runner.pool
        self._page_size, self._page_bytes = pool.page_size, page_bytes(pool)
        self._token_s = target.token_s
        self.fingerprint = b""
        self._draining = False

    def open(self, fingerprint: bytes) -> None:
        """Starts to serve pages under their fingerprint."""
        self.fingerprint = fingerprint

    def drain(self) -> None:
        """Refuses new requests."""
        self._draining = True

    async def Fetch(  # noqa: N802
        self, message: pb.FetchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FetchResponse]:
        """Streams pages as they are computed; the request ends when the caller leaves."""
        request = self._request(message)
        loop, batches = asyncio.get_running_loop(), asyncio.Queue[PageBatch | None]()

        def deliver(pages: PageBatch | None) -> None:
            loop.call_soon_threadsafe(batches.put_nowait, pages)

        def submit() -> None:
            self._engine.submit(request)
            self._pages.expect(request.id, message.prefill.first, deliver)

        try:
            await queued(self._inbox.call(submit))
            while (pages := await batches.get()) is not None:
                for batch in self._batches(pages):
                    yield await asyncio.to_thread(self._pack, request.tenant, batch)
        finally:
            self._inbox.post(lambda: self._abandon(request.id))

    def _request(self, message: pb.FetchRequest) -> Request:
        prefill, size = message.prefill, self._page_size
        check(message.HasField("prefill"), "prefill", "must be there: a verifier has pages of prompts only")
        check(all(len(key) == _KEY_BYTES for key in message.keys), "keys", f"have {_KEY_BYTES} bytes each")
        check(prefill.within_ms >= 1, "prefill.within_ms", f"must be at least 1, not {prefill.within_ms}")
        pages = prefill.first + len(message.keys)
        fits = prefill.first >= 0 and len(prefill.tokens) == 4 * (pages * size + 1)
        check(fits, "prefill.tokens", f"must be {size} for each of the {pages} pages, and one more")
        if self._draining or not self.fingerprint:
            raise Unavailable("this verifier computes no pages for others at the moment")
        submission = verifier_pb2.SubmitRequest(
            request_id=f"pages-{secrets.token_hex(12)}",
            tenant=prefill.tenant,
            prompt=prefill.tokens,
            sampling=SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True),
            speculation=Speculation(off=True),
            priority=prefill.priority,
            weight=prefill.weight if prefill.HasField("weight") else None,
            ttft_ms=prefill.within_ms,
            residency=prefill.residency,
            cache_salt=prefill.cache_salt,
        )
        return replace(request_from_proto(submission, self._limits, self._engine.scheduler.now()), prefill_only=True)

    def _batches(self, pages: PageBatch) -> Iterator[PageBatch]:
        """Splits pages into batches that fit into a message."""
        step = max(_MESSAGE_BYTES // self._page_bytes, 1)
        for start in range(0, len(pages.hashes), step):
            end = start + step
            yield PageBatch(pages.hashes[start:end], [part[:, start:end] for part in pages.copies])

    def _pack(self, tenant: str, batch: PageBatch) -> pb.FetchResponse:
        HANDED.inc(len(batch.hashes) * self._page_size)
        return pb.FetchResponse(pages=[self._page(tenant, batch, place) for place in range(len(batch.hashes))])

    def _page(self, tenant: str, batch: PageBatch, place: int) -> pb.Page:
        key, data = page_key(self.fingerprint, tenant, batch.hashes[place]), to_bytes(batch.copies, place)
        seconds = self._page_size * self._token_s
        return pb.Page(
            key=key,
            data=data,
            checksum=page_checksum(key, data),
            tokens=self._page_size,
            seconds=seconds,
            size=len(data),
            tier=TIER,
        )

    def _abandon(self, request: str) -> None:
        self._pages.forget(request)
        self._engine.cancel(request)
