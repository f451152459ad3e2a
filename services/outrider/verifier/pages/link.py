"""The verifier's link to the KV caches: fetches and offers pages in the event loop, and never delays a step.

Every failure of a KV cache (gone, stalled, wrong data) is a miss.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

import grpc
from outrider.mesh.tasks import Tasks
from outrider.v1 import kvcache_pb2 as pb
from outrider.verifier.pages.cached_pages import OfferedPages, WantedPages
from outrider.verifier.pages.metrics import FETCH_SECONDS, FETCHES, FETCHING, SAVED_SECONDS
from outrider.verifier.pages.page_sender import PageSender
from outrider.verifier.pages.peers import Peer, Peers
from outrider.verifier.pages.receiver import BadPage, OnArrival, PageArrivals, Receiver
from outrider.verifier.pages.remote_prefill import RemotePrefill
from outrider.verifier.pages.shards import instances_of
from outrider.verifier.pages.transfer import TransferTime
from outrider.wire.pages import page_key

Mode = Literal["auto", "always", "off"]


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """Terms of fetching.

    Attributes:
        mode: ``auto`` fetches pages if that is faster than computing them, ``always`` fetches all pages it finds.
        deadline_s: most seconds that a sequence waits.
        page_size: tokens a page.
        page_bytes: bytes a page.
        token_s: measured seconds of computing a token of a prompt.
    """

    mode: Mode
    deadline_s: float
    page_size: int
    page_bytes: int
    token_s: float

    def recompute(self, pages: int) -> float:
        """Seconds to compute ``pages`` pages."""
        return pages * self.page_size * self.token_s

    def patience(self, pages: int) -> float:
        """Most seconds to wait for ``pages`` pages; except with ``always``, no longer than computing them takes."""
        return self.deadline_s if self.mode == "always" else min(self.deadline_s, self.recompute(pages))


class CacheLink:
    """A `Link` from the engine's thread to the event loop.

    Args:
        peers: the KV caches.
        remote_prefill: asks other verifiers for pages that no KV cache holds.
        receiver: reads streams of pages.
        tasks: runs the fetches.
        terms: terms of fetching.
        arrived: called in the event loop with arriving pages, and with the `WantedPages` that begins at them.
        ended: called in the event loop when no more pages will arrive.
    """

    def __init__(
        self,
        peers: Peers,
        remote_prefill: RemotePrefill,
        receiver: Receiver,
        tasks: Tasks,
        terms: FetchTerms,
        arrived: OnArrival,
        ended: Callable[[WantedPages], None],
    ) -> None:
        self._peers, self._spawn, self._terms = peers, tasks.spawn, terms
        self._remote_prefill, self._receiver = remote_prefill, receiver
        self._arrived, self._ended = arrived, ended
        self._loop = asyncio.get_running_loop()
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._transfer: defaultdict[str, TransferTime] = defaultdict(TransferTime)
        self._fingerprint = b""
        self.sender = PageSender(peers, tasks, terms.page_size, terms.token_s)

    def open(self, fingerprint: bytes) -> None:
        """Starts to fetch and to offer, under the fingerprint of the pages."""
        self._fingerprint = fingerprint
        self._remote_prefill.open(fingerprint)
        self.sender.start(fingerprint)

    @property
    def instances(self) -> list[str]:
        """Names of the KV caches in use; empty before `open`."""
        return self._peers.instances if self._fingerprint else []

    def _instances_for(self, wanted: WantedPages) -> list[str]:
        return self._peers.within(wanted.residency) if self._fingerprint else []

    def fetch(self, wanted: WantedPages) -> bool:
        """See `Link`."""
        useful = bool(self._instances_for(wanted)) or self._remote_prefill.useful(wanted)
        if useful:
            self._loop.call_soon_threadsafe(self._begin, wanted)
        return useful

    def leave(self, number: int) -> None:
        """See `Link`."""
        self._loop.call_soon_threadsafe(self._cancel, number)

    def wants(self, tenant: str, hashes: Seq[bytes], first: int) -> list[int]:
        """See `Link`."""
        return self.sender.wants(tenant, hashes, first) if self.instances else []

    def offer(self, offered: OfferedPages) -> None:
        """See `Link`."""
        self._loop.call_soon_threadsafe(self.sender.take, offered)

    def _begin(self, wanted: WantedPages) -> None:
        task = self._fetches[wanted.number] = self._spawn(self._run(wanted), f"pages of {wanted.number}")
        task.add_done_callback(lambda _: self._end(wanted))
        FETCHING.set(len(self._fetches))

    def _cancel(self, number: int) -> None:
        if (task := self._fetches.get(number)) is not None:
            task.cancel()

    async def _run(self, wanted: WantedPages) -> None:
        arrivals = PageArrivals(wanted, self._arrived)
        try:
            if self._instances_for(wanted):
                await self._from_caches(wanted, arrivals)
            await self._remote_prefill.run(wanted, arrivals)
        finally:
            self._ended(wanted)

    async def _from_caches(self, wanted: WantedPages, arrivals: PageArrivals) -> None:
        began, outcome = time.monotonic(), "cancelled"
        try:
            async with asyncio.timeout(self._terms.patience(len(wanted.hashes) - wanted.present)):
                outcome = await self._fetch(wanted, arrivals)
        except TimeoutError:
            outcome = "late"
        finally:
            FETCHES.labels(outcome).inc()
            FETCH_SECONDS.inc(time.monotonic() - began)
            SAVED_SECONDS.inc(self._terms.recompute(arrivals.pages))
            self.sender.note(wanted.tenant, wanted.hashes[: wanted.present + arrivals.pages])

    def _end(self, wanted: WantedPages) -> None:
        del self._fetches[wanted.number]
        FETCHING.set(len(self._fetches))

    async def _fetch(self, wanted: WantedPages, arrivals: PageArrivals) -> str:
        """Fetches the leading wanted pages that KV caches hold, one instance after another; returns the outcome."""
        instances = self._instances_for(wanted)
        if not instances:
            return "failed"
        keys = [page_key(self._fingerprint, wanted.tenant, digest) for digest in wanted.hashes]
        owners = instances_of(keys, instances)
        outcome, start = "miss", wanted.present
        while start < len(keys):
            end = next((at for at in range(start, len(keys)) if owners[at] != owners[start]), len(keys))
            peer = self._peers.available(owners[start])
            if peer is None:
                return "hit" if arrivals.pages else "failed"
            outcome = await self._ask(peer, keys[start:end], arrivals)
            if outcome != "hit" or arrivals.pages < end - wanted.present:
                break
            start = end
        return "hit" if arrivals.pages else outcome

    async def _ask(self, peer: Peer, keys: list[bytes], arrivals: PageArrivals) -> str:
        """Fetches the leading pages of ``keys`` that ``peer`` holds; returns the outcome."""
        began = time.monotonic()
        try:
            leading = (await peer.stub.Lookup(pb.LookupRequest(keys=keys))).leading
            looked_up = time.monotonic()
            peer.answered()
            if not 0 < leading <= len(keys):
                return "miss"
            if not self._pays(peer, leading):
                return "slower"
            count = arrivals.pages
            request = pb.FetchRequest(keys=keys[:leading], shared=peer.arena is not None)
            await self._receiver.receive(peer, request, arrivals.add)
            size = (arrivals.pages - count) * self._terms.page_bytes
            if size:
                self._transfer[peer.member.instance].measured(size, looked_up - began, time.monotonic() - looked_up)
        except grpc.aio.AioRpcError as error:
            peer.fail(error.code().name)
            return "failed"
        except BadPage as error:
            peer.fail(str(error))
            return "failed"
        except asyncio.CancelledError:
            peer.delay()
            raise
        return "hit"

    def _pays(self, peer: Peer, pages: int) -> bool:
        expected = self._transfer[peer.member.instance].seconds(pages * self._terms.page_bytes)
        return self._terms.mode == "always" or expected < self._terms.recompute(pages)
