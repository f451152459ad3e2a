"""The engine's side of the KV cache: pages wanted, pages offered, and copies into and out of the pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.sequence import PageSource, Sequence
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.kernels.pool import KvPool
from outrider.wire.residency import Residency
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prompt:
    """What another verifier needs to compute the pages that a sequence lacks.

    Attributes:
        tokens: tokens of all pages, and one more.
        priority: priority of the request.
        weight: weight of the request.
        seconds: cost of computing the missing pages here.
        cache_salt: salt of the request.
    """

    tokens: list[int]
    priority: int
    weight: float
    seconds: float
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class WantedPages:
    """Pages that a sequence lacks.

    Attributes:
        number: number of the sequence.
        tenant: tenant of the request.
        hashes: chain hashes of the sequence's full pages.
        present: number of leading pages in the pool, which are not fetched.
        prompt: the prompt for a remote prefill; None if no other verifier may compute the pages.
        residency: tags of the services that may be asked; None for all.
        source: who sends the pages that arrive.
    """

    number: int
    tenant: str
    hashes: list[bytes]
    present: int
    prompt: Prompt | None = None
    residency: Residency = None
    source: PageSource = "kvcache"


@dataclass(frozen=True, slots=True)
class OfferedPages:
    """Copies of the pages at ``indices`` of a chain, made by `copy_pages`, for KV caches of a ``residency``."""

    tenant: str
    hashes: list[bytes]
    indices: list[int]
    copies: list[Tensor]
    residency: Residency = None


class Link(Protocol):
    """The connection to KV caches. Called in the engine's thread; never waits."""

    def fetch(self, wanted: WantedPages) -> bool:
        """Starts a fetch; if it returns True, `CachedPages.ended` follows."""

    def leave(self, number: int) -> None:
        """Cancels the fetch of a sequence that has ended, if one runs."""

    def wants(self, tenant: str, hashes: Seq[bytes], first: int) -> list[int]:
        """Indices of a chain's pages from ``first`` on that the link takes now; the caller must offer them."""

    def offer(self, offered: OfferedPages) -> None:
        """Takes pages to store; may drop them."""


_STAGED = 8
"""Pages of pinned memory: 16 MiB for a model of 8 B."""
Price = Callable[[Sequence, int], float]
"""Seconds that computing a number of a sequence's tokens costs here."""


@dataclass(slots=True)
class _PendingFetch:
    """A sequence that waits for pages, and the number of pages that have not arrived."""

    sequence: Sequence
    lacking: int


class CachedPages:
    """A `outrider.engine.decode.page_cache.PageCache` over a link.

    Fetched pages are published like pages of ended sequences: an admitted sequence finds them by hash, and unused ones
    are evicted. The scheduler needs no change for them. Fetches never exceed the free pages.
    """

    def __init__(
        self, pool: KvPool, scheduler: Scheduler, link: Link, price: Price = lambda sequence, tokens: 0.0
    ) -> None:
        self._pool, self._scheduler, self._link, self._price = pool, scheduler, link, price
        self._writer = PageWriter(pool)
        self._pages: PageTable = scheduler.pages
        self._offered: dict[int, int] = {}
        self._pending: dict[int, _PendingFetch] = {}

    def seek(self, sequence: Sequence) -> bool:
        """See `PageCache`."""
        hashes, present = self._scheduler.chain(sequence)
        room = self._pages.available - sum(pending.lacking for pending in self._pending.values())
        lacking = min(len(hashes) - present, room)
        if lacking <= 0:
            return False
        hashes, prompt = hashes[: present + lacking], self._prompt(sequence, present, lacking)
        request = sequence.request
        wanted = WantedPages(sequence.number, request.tenant, hashes, present, prompt, request.residency)
        if not self._link.fetch(wanted):
            return False
        self._pending[sequence.number] = _PendingFetch(sequence, lacking)
        return True

    def _prompt(self, sequence: Sequence, present: int, lacking: int) -> Prompt | None:
        request, size = sequence.request, self._pool.page_size
        if request.prefill_only:
            return None
        tokens = sequence.tokens[: (present + lacking) * size + 1]
        seconds = self._price(sequence, lacking * size)
        return Prompt(tokens, request.priority, request.weight, seconds, request.cache_salt)

    def leave(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        self._offered.pop(sequence.number, None)
        if self._pending.pop(sequence.number, None) is not None:
            self._link.leave(sequence.number)

    def offer(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        if sequence.published > self._offered.get(sequence.number, 0):
            self.offer_all(sequence, self._offered.get(sequence.number, 0))

    def offer_all(self, sequence: Sequence, first: int = 0) -> int:
        """See `PageCache`; from page ``first`` on. Pages that the link has taken lately are left out."""
        now, request = sequence.published, sequence.request
        self._offered[sequence.number] = now
        hashes = sequence.hashes[:now]
        if indices := self._link.wants(request.tenant, hashes, first):
            copies = copy_pages(self._pool, [sequence.pages[index] for index in indices])
            self._link.offer(OfferedPages(request.tenant, hashes, indices, copies, request.residency))
        return len(indices)

    def arrive(self, wanted: WantedPages, pages: Seq[bytes]) -> None:
        """Publishes fetched pages, behind the ``wanted.present`` leading ones, as far as pages are free."""
        if (pending := self._pending.get(wanted.number)) is not None:
            pending.lacking -= len(pages)
            fetched = pending.sequence.fetched
            fetched[wanted.source] = fetched.get(wanted.source, 0) + len(pages) * self._pool.page_size
        held = self._pages.match(wanted.hashes[: wanted.present])
        if len(held) == wanted.present:
            for digest, data in zip(wanted.hashes[wanted.present :], pages, strict=False):
                page_ids = self._pages.match([digest])
                if not page_ids and not self._pages.available:
                    break
                held.append(page_ids[0] if page_ids else self._write(digest, data, held, wanted.tenant))
        self._pages.release(held)

    def ended(self, wanted: WantedPages) -> None:
        """Resumes the sequence; no more pages will arrive."""
        if (pending := self._pending.pop(wanted.number, None)) is not None:
            self._scheduler.resume(pending.sequence)

    def _write(self, digest: bytes, data: bytes, before: list[int], tenant: str) -> int:
        page = self._pages.allocate(before[-1] if before else None, "fetched")
        self._writer.write(page, data)
        self._pages.publish(page, digest, tenant)
        return page


def page_bytes(pool: KvPool) -> int:
    """Bytes of a page, scales included."""
    return sum(part[:, 0].numel() * part.element_size() for part in _parts(pool))


@torch.inference_mode()
def copy_pages(pool: KvPool, pages: Seq[int]) -> list[Tensor]:
    """Copies of keys and values of ``pages``, and scales of 8-bit pages, [layers, pages, ...] on the pool's device."""
    chosen = torch.tensor(pages, device=pool.data.device)
    return [part.index_select(1, chosen) for part in _parts(pool)]


def to_bytes(copies: Seq[Tensor], place: int) -> bytes:
    """The stored form of one page that `copy_pages` copied: the slots of each layer in turn, then the scales."""
    pages = [part[:, place].contiguous().flatten().view(torch.uint8) for part in copies]
    return b"".join(page.cpu().numpy().tobytes() for page in pages)


class PageWriter:
    """Writes stored pages into a pool.

    A pool on a GPU gets them through some pages of pinned memory, one after the other: the GPU copies them in its own
    time, and the caller waits only for a page that has not left this memory.
    """

    def __init__(self, pool: KvPool) -> None:
        self._parts = [part.flatten(2).view(torch.uint8) for part in _parts(pool)]
        self._device, self._size = pool.data.device, page_bytes(pool)
        self._staged: deque[tuple[Tensor, torch.Event]] = deque()

    @torch.inference_mode()
    def write(self, page: int, data: bytes) -> None:
        """Writes a page's stored form (`to_bytes`, `page_bytes` long)."""
        slots = [part[:, page] for part in self._parts]
        sizes = [each.numel() for each in slots]
        if self._device.type != "cpu":
            for each, stored in zip(slots, torch.split(self._on_device(data), sizes), strict=True):
                each.copy_(stored.view(each.shape))
            return
        start = 0
        for each, size in zip(slots, sizes, strict=True):  # by NumPy: torch would copy what it may not write to
            each.numpy()[...] = numpy.frombuffer(data, numpy.uint8, size, start).reshape(each.shape)
            start += size

    def _on_device(self, data: bytes) -> Tensor:
        if len(self._staged) < _STAGED:
            place = torch.empty(self._size, dtype=torch.uint8, pin_memory=True)
        else:
            place, copied = self._staged.popleft()
            copied.synchronize()
        place.numpy()[...] = numpy.frombuffer(data, numpy.uint8)
        arriving = torch.empty(self._size, dtype=torch.uint8, device=self._device).copy_(place, non_blocking=True)
        copied = torch.Event(device=self._device)
        copied.record()
        self._staged.append((place, copied))
        return arriving


def _parts(pool: KvPool) -> list[Tensor]:
    """Views of keys and values and of scales, [layers, pages, page_size, ...]; 8-bit numbers as uint8.

    Some builds of torch cannot index 8-bit floats on CUDA devices.
    """
    data = pool.data.view(torch.uint8) if pool.data.itemsize == 1 else pool.data
    tensors = [part for part in (data, pool.scales) if part is not None]
    return [part.view(part.shape[0], -1, pool.page_size, *part.shape[2:]) for part in tensors]
