"""Connects a verifier's engine with the mesh's KV caches and other verifiers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.runner import Runner
from outrider.engine.models.fingerprint import page_fingerprint
from outrider.engine.pages.page_table import PageTable
from outrider.engine.target import Target
from outrider.engine.worker import Inbox
from outrider.mesh.service import Mesh
from outrider.v1.kvcache_pb2_grpc import add_KvCacheServicer_to_server
from outrider.verifier.pages.cached_pages import CachedPages, WantedPages, page_bytes
from outrider.verifier.pages.link import CacheLink, FetchTerms
from outrider.verifier.pages.metrics import CACHES
from outrider.verifier.pages.page_sender import MOST_WAITING
from outrider.verifier.pages.page_server import DeliveringCache, PageServer
from outrider.verifier.pages.peers import Peers
from outrider.verifier.pages.receiver import Receiver
from outrider.verifier.pages.remote_prefill import PrefillPeers, RemotePrefill, RemotePrefillTerms
from outrider.verifier.settings import VerifierSettings

_OPEN_S = 10.0
"""Most seconds that a verifier's start waits for the fingerprint of its pages, which reads all weights."""
_WIPED_BYTES = 64 << 20
"""Bytes of pages that are overwritten between two steps."""


class PageExchange:
    """Fetches pages from KV caches and other verifiers, and sends the engine's pages to KV caches.

    Does nothing until the registry has a KV cache or another verifier.

    Args:
        mesh: provides the registry of KV caches and verifiers.
        settings: settings of the verifier.
        target: the target with its pages.
        inbox: inbox of the engine's thread.

    Attributes:
        cache: the engine's `PageCache`.
    """

    def __init__(self, mesh: Mesh, settings: VerifierSettings, target: Target, inbox: Inbox) -> None:
        self._mesh, self._settings, self._target, self._inbox = mesh, settings, target, inbox
        self._peer_found = asyncio.Event()
        sockets, pool = bool(settings.sockets), target.runner.pool
        self._peers = Peers(mesh.registry, settings.kv_cache_shared, sockets, self._changed)
        self._prefill_peers = PrefillPeers(mesh.registry, settings.role, sockets, self._peer_found.set)
        self._link = self._make_link(page_bytes(pool))
        price = partial(target.estimate.added_delay, target.scheduler)
        self._pages = CachedPages(pool, target.scheduler, self._link, price)
        self.cache = DeliveringCache(self._pages, pool)
        self._server: PageServer | None = None

    def _make_link(self, size: int) -> CacheLink:
        settings, tasks, page_size = self._settings, self._mesh.tasks, self._settings.page_size
        receiver = Receiver(page_size, size, tasks.spawn)
        fetch_terms = FetchTerms(settings.kv_cache, settings.kv_cache_deadline_s, page_size, size, self._target.token_s)
        terms = RemotePrefillTerms(settings.handover, settings.handover_deadline_s, page_size, size)
        remote_prefill = RemotePrefill(self._prefill_peers, receiver, terms)
        return CacheLink(self._peers, remote_prefill, receiver, tasks, fetch_terms, self._arrived, self._ended)

    def _arrived(self, wanted: WantedPages, pages: list[bytes]) -> None:
        self._inbox.post(partial(self._pages.arrive, wanted, pages))

    def _ended(self, wanted: WantedPages) -> None:
        self._inbox.post(partial(self._pages.ended, wanted))

    async def start(self, engine: Engine) -> None:
        """Starts to follow the registry, and serves pages that ``engine`` computes for other verifiers.

        Where there is somebody to exchange pages with, returns when that is possible, or after `_OPEN_S` seconds.
        """
        if self._target.ranks is not None:
            return  # each rank has pages of its own heads
        self._server = PageServer(self.cache, self._target, self._inbox, engine)
        if self._settings.role != "decode":
            add_KvCacheServicer_to_server(self._server, self._mesh.rpc)
        opening = self._mesh.tasks.spawn(self._open(self._server), "exchange of pages")
        if self._settings.kv_cache != "off":
            self._peers.start()
        self._prefill_peers.start()
        if self._peer_found.is_set():
            await asyncio.wait({opening}, timeout=_OPEN_S)

    def status(self) -> dict[str, Any]:
        """Status for the registry: the verifier's role, and the fingerprint of its pages once computed."""
        fingerprint = b"" if self._server is None else self._server.fingerprint
        return {"role": self._settings.role, "pages_of": fingerprint.hex()}

    async def store(self, offer: Callable[[int], int]) -> None:
        """Has KV caches store all that ``offer`` offers them, in the engine's thread, up to a number of pages a call.

        Ends where a KV cache takes no pages.
        """
        while await asyncio.wrap_future(self._inbox.call(partial(offer, MOST_WAITING))):
            if not await self._link.sender.all_sent():
                return

    async def erase(self, tenant: str) -> int:
        """Drops a tenant's pages that wait for KV caches; returns their number."""
        return await self._link.sender.erase(tenant)

    async def wipe(self) -> None:
        """Overwrites all free pages with zeros, a part of them between two steps."""
        runner, pages = self._target.runner, self._target.pages
        part = max(_WIPED_BYTES // page_bytes(runner.pool), 1)
        for first in range(0, pages.total, part):
            await asyncio.wrap_future(self._inbox.call(partial(_wipe, runner, pages, first, first + part)))

    def drain(self) -> None:
        """Refuses new prompts of other verifiers."""
        if self._server is not None:
            self._server.drain()

    def _changed(self) -> None:
        self._peer_found.set()
        self._link.sender.forget()
        CACHES.set(len(self._link.instances))

    async def _open(self, server: PageServer) -> None:
        """Computes the fingerprint, which reads all weights, only after a KV cache or a verifier has been found."""
        await self._peer_found.wait()
        fingerprint = await asyncio.to_thread(
            page_fingerprint,
            self._target.directory,
            self._target.runner.model,
            self._target.runner.pool,
            quantization=self._settings.quantization,
            determinism=self._settings.determinism,
        )
        server.open(fingerprint)
        self._link.open(fingerprint)
        CACHES.set(len(self._link.instances))


def _wipe(runner: Runner, pages: PageTable, first: int, end: int) -> None:
    runner.wipe(pages.unused(first, end))
