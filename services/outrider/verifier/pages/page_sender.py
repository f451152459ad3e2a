"""Sends full pages to the KV caches, one batch after another; drops pages if too many wait."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence

import grpc
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.v1 import kvcache_pb2 as pb
from outrider.verifier.pages.cached_pages import OfferedPages, to_bytes
from outrider.verifier.pages.metrics import OFFERED
from outrider.verifier.pages.peers import Peers
from outrider.verifier.pages.shards import instances_of
from outrider.wire.pages import page_checksum, page_key

MOST_WAITING = 256
"""Most pages that wait; further pages are dropped."""
_MOST_REMEMBERED = 1 << 17
_REMEMBERED_S = 60.0
"""Seconds for which an offered page is not offered again; after that the KV cache may have evicted it."""
_TIMEOUT_S = 2.0
_MESSAGE_PAGES = 16

_log = get_logger("caching")


class PageSender:
    """Sends pages to KV caches. `wants` runs in the engine's thread, everything else in the event loop."""

    def __init__(self, peers: Peers, tasks: Tasks, page_size: int, token_s: float) -> None:
        self._peers, self._spawn = peers, tasks.spawn
        self._page_size, self._token_s = page_size, token_s
        self._fingerprint = b""
        self._offered_pages: set[tuple[str, bytes]] = set()
        self._offered_since = time.monotonic()
        self._waiting: deque[OfferedPages] = deque()
        self._pages = 0
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._idle, self._failed = asyncio.Event(), False
        self._idle.set()

    def start(self, fingerprint: bytes) -> None:
        """Starts to send pages under ``fingerprint``."""
        self._fingerprint = fingerprint
        self._spawn(self._send_for_ever(), "pages for the KV cache")

    def forget(self) -> None:
        """Forgets the pages sent so far: KV caches came or went, and their pages may be lost."""
        self._offered_pages = set()

    async def erase(self, tenant: str) -> int:
        """Drops a tenant's waiting pages, and waits for those under way; returns the number of dropped ones."""
        dropped = [offered for offered in self._waiting if offered.tenant == tenant]
        self._waiting = deque(offered for offered in self._waiting if offered.tenant != tenant)
        self._offered_pages = {page for page in self._offered_pages if page[0] != tenant}
        count = sum(len(offered.indices) for offered in dropped)
        self._pages -= count
        async with self._sending:
            return count

    def wants(self, tenant: str, hashes: Sequence[bytes], first: int) -> list[int]:
        """Indices of a chain's pages from ``first`` on that were not offered lately, as many as may wait."""
        if time.monotonic() - self._offered_since > _REMEMBERED_S or len(self._offered_pages) > _MOST_REMEMBERED:
            self._offered_pages, self._offered_since = set(), time.monotonic()
        offered_pages = self._offered_pages
        new = [index for index in range(first, len(hashes)) if (tenant, hashes[index]) not in offered_pages]
        wanted = new[: max(MOST_WAITING - self._pages, 0)]
        OFFERED.labels("dropped").inc(len(new) - len(wanted))
        offered_pages.update((tenant, hashes[index]) for index in wanted)
        return wanted

    def take(self, offered: OfferedPages) -> None:
        """Queues pages."""
        self._waiting.append(offered)
        self._pages += len(offered.indices)
        self._idle.clear()
        self._news.set()

    async def all_sent(self) -> bool:
        """Waits until no page waits; whether KV caches took all since the last call."""
        await self._idle.wait()
        failed, self._failed = self._failed, False
        return not failed

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Notes pages that were fetched from KV caches, so that they are not offered."""
        self._offered_pages.update((tenant, digest) for digest in hashes)

    async def _send_for_ever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                offered = self._waiting.popleft()
                try:
                    async with self._sending:
                        await self._send(offered)
                except Exception as error:  # copying from a device may fail; the next pages may still be sent
                    self._fail(offered.tenant, [offered.hashes[index] for index in offered.indices])
                    _log.error("pages were not sent to the KV cache", pages=len(offered.indices), exc_info=error)
                finally:
                    self._pages -= len(offered.indices)
            self._idle.set()

    async def _send(self, offered: OfferedPages) -> None:
        instances = self._peers.within(offered.residency)
        if not instances:
            return
        pages = await asyncio.to_thread(self._pack, offered)
        keys = [page_key(self._fingerprint, offered.tenant, digest) for digest in offered.hashes]
        owners = instances_of(keys, instances)
        parts: defaultdict[str, list[pb.Page]] = defaultdict(list)
        for page in pages:
            parts[owners[page.index]].append(page)
        for instance, part in parts.items():
            if await self._store(instance, offered.tenant, part):
                OFFERED.labels("sent").inc(len(part))
            else:
                self._fail(offered.tenant, [offered.hashes[page.index] for page in part])

    def _fail(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Notes pages that no KV cache took; they may be offered again."""
        OFFERED.labels("failed").inc(len(hashes))
        self._failed = True
        self._offered_pages -= {(tenant, digest) for digest in hashes}

    def _pack(self, offered: OfferedPages) -> list[pb.Page]:
        return [self._page(offered, place) for place in range(len(offered.indices))]

    def _page(self, offered: OfferedPages, place: int) -> pb.Page:
        index = offered.indices[place]
        key, data = page_key(self._fingerprint, offered.tenant, offered.hashes[index]), to_bytes(offered.copies, place)
        seconds = self._page_size * self._token_s
        return pb.Page(
            key=key, data=data, checksum=page_checksum(key, data), tokens=self._page_size, index=index, seconds=seconds
        )

    async def _store(self, instance: str, tenant: str, pages: list[pb.Page]) -> bool:
        if (peer := self._peers.available(instance)) is None:
            return False
        batches = [pages[start : start + _MESSAGE_PAGES] for start in range(0, len(pages), _MESSAGE_PAGES)]
        try:
            await peer.stub.Store(
                iter([pb.StoreRequest(tenant=tenant, pages=batch) for batch in batches]), timeout=_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            peer.fail(error.code().name)
            return False
        return True
