"""Receives pages from KV caches and other verifiers, and checks each page before use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import grpc
from outrider.engine.requests.sequence import PageSource
from outrider.mesh.telemetry import get_logger
from outrider.v1 import kvcache_pb2 as pb
from outrider.verifier.pages.cached_pages import WantedPages
from outrider.verifier.pages.metrics import FETCHED_BYTES, FETCHED_TOKENS
from outrider.verifier.pages.peers import Peer
from outrider.wire.pages import page_checksum

Spawn = Callable[[Coroutine[Any, Any, Any], str], object]
OnArrival = Callable[[WantedPages, list[bytes]], None]

_log = get_logger("caching")


class BadPage(Exception):
    """An instance sent a page that was not asked for, or wrong data."""


class PageArrivals:
    """Collects the pages that a sequence lacks, in order.

    Attributes:
        pages: number of pages that have arrived.
        source: who sends the pages.
    """

    def __init__(self, wanted: WantedPages, arrived: OnArrival) -> None:
        self._wanted, self._arrived, self.pages = wanted, arrived, 0
        self.source: PageSource = "kvcache"

    def add(self, pages: list[bytes]) -> None:
        """Takes in the next pages."""
        present = self._wanted.present + self.pages
        self.pages += len(pages)
        self._arrived(replace(self._wanted, present=present, source=self.source), pages)


class Receiver:
    """Reads streams of pages.

    Args:
        page_size: tokens a page.
        page_bytes: bytes a page.
        spawn: runs background tasks.
    """

    def __init__(self, page_size: int, page_bytes: int, spawn: Spawn) -> None:
        self._page_size, self._page_bytes, self._spawn = page_size, page_bytes, spawn

    async def receive(self, peer: Peer, request: pb.FetchRequest, add: Callable[[list[bytes]], None]) -> None:
        """Passes pages to ``add``, message by message.

        Raises:
            BadPage: a page was not asked for, or does not match its checksum or size.
            grpc.aio.AioRpcError: the call failed.
        """
        lease, received = 0, 0
        call = peer.stub.Fetch(request)
        try:
            async for response in call:
                lease = response.lease
                _check_order(response.pages, request.keys[received:])
                received += len(response.pages)
                add([self._checked(peer, page) for page in response.pages])
        finally:
            call.cancel()
            if lease:
                self._spawn(_release(peer, lease), "end of a lease")

    def _checked(self, peer: Peer, page: pb.Page) -> bytes:
        """The page's data, from the message or the arena; `BadPage` if it does not match its checksum or size."""
        shared = not page.data and peer.arena is not None
        data = peer.arena.read(page.offset, page.size) if shared and peer.arena is not None else page.data
        if len(data) != self._page_bytes or page_checksum(page.key, data) != page.checksum:
            raise BadPage("it sent a page that does not match its checksum")
        FETCHED_TOKENS.labels(page.tier).inc(self._page_size)
        FETCHED_BYTES.labels("shared" if shared else peer.transport).inc(len(data))
        return data


def _check_order(pages: Seq[pb.Page], keys: Seq[bytes]) -> None:
    if len(pages) > len(keys) or any(page.key != key for page, key in zip(pages, keys, strict=False)):
        raise BadPage("it sent a page that was not asked for")


async def _release(peer: Peer, lease: int) -> None:
    try:
        await peer.stub.Release(pb.ReleaseRequest(lease=lease), timeout=1.0)
    except grpc.aio.AioRpcError:
        _log.debug("a lease was not released and will expire", kvcache=peer.member.instance)
