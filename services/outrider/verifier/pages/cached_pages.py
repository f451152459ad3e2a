"""The engine's side of the KV cache: what is asked for, what is offered, and how pages get in and out of the pool."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import numpy
import torch
from outrider.kernels.pool import KvPool
from outrider.models.pages import PageTable
from outrider.verifier.requests.sequence import Sequence
from outrider.verifier.scheduling.scheduler import Scheduler
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prompt:
    """What another verifier needs to compute the pages that a sequence lacks.

    Attributes:
        tokens: of all pages, and one more.
        priority: of the request.
        weight: of the request.
        seconds: what it would cost to compute them here.
    """

    tokens: list[int]
    priority: int
    weight: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pages that a sequence lacks.

    Attributes:
        number: of the sequence.
        hashes: chain hashes of the sequence's full pages.
        here: how many of the leading ones need not be fetched.
        prompt: None where no other verifier is to compute them.
    """

    number: int
    tenant: str
    hashes: list[bytes]
    here: int
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """Copies of the pages at ``indices`` of a chain, by `copy_pages`."""

    tenant: str
    hashes: list[bytes]
    indices: list[int]
    copies: list[Tensor]


class Link(Protocol):
    """The way to the KV cache; called in the engine's thread, and never waits."""

    def fetch(self, wanted: Wanted) -> bool:
        """Begins to fetch; whether it does, so that `CachedPages.ended` will follow."""

    def leave(self, number: int) -> None:
        """Ends a fetch, if it runs: its sequence is gone."""

    def wants(self, tenant: str, hashes: Seq[bytes], first: int) -> list[int]:
        """Which of a chain's pages from ``first`` on are taken now; they must be offered."""

    def offer(self, offered: Offered) -> None:
        """Hands pages over; may drop them."""


Price = Callable[[Sequence, int], float]
"""Seconds that it costs to compute so many tokens of a sequence here."""


@dataclass(slots=True)
class _Sought:
    """A sequence that waits for pages, and how many of them have not arrived."""

    sequence: Sequence
    lacking: int


class CachedPages:
    """A `outrider.verifier.decode.page_cache.PageCache` over a link.

    What is fetched goes where pages of ended sequences are: found by its hash when the sequence is admitted, and given
    up like any other that nobody holds. The scheduler need not know of it. No more is fetched at a time than has room.
    """

    def __init__(
        self, pool: KvPool, scheduler: Scheduler, link: Link, price: Price = lambda sequence, tokens: 0.0
    ) -> None:
        self._pool, self._scheduler, self._link, self._price = pool, scheduler, link, price
        self._pages: PageTable = scheduler.pages
        self._offered: dict[int, int] = {}
        self._sought: dict[int, _Sought] = {}

    def seek(self, sequence: Sequence) -> bool:
        """See `PageCache`."""
        hashes, here = self._scheduler.chain(sequence)
        room = self._pages.available - sum(each.lacking for each in self._sought.values())
        lacking = min(len(hashes) - here, room)
        if lacking <= 0:
            return False
        hashes, prompt = hashes[: here + lacking], self._prompt(sequence, here, lacking)
        if not self._link.fetch(Wanted(sequence.number, sequence.request.tenant, hashes, here, prompt)):
            return False
        self._sought[sequence.number] = _Sought(sequence, lacking)
        return True

    def _prompt(self, sequence: Sequence, here: int, lacking: int) -> Prompt | None:
        request, size = sequence.request, self._pool.page_size
        if request.handed:
            return None
        tokens = sequence.tokens[: (here + lacking) * size + 1]
        return Prompt(tokens, request.priority, request.weight, self._price(sequence, lacking * size))

    def leave(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        self._offered.pop(sequence.number, None)
        if self._sought.pop(sequence.number, None) is not None:
            self._link.leave(sequence.number)

    def offer(self, sequence: Sequence) -> None:
        """See `PageCache`."""
        before, now = self._offered.get(sequence.number, 0), sequence.published
        if now <= before:
            return
        self._offered[sequence.number] = now
        hashes = sequence.hashes[:now]
        if indices := self._link.wants(sequence.request.tenant, hashes, before):
            copies = copy_pages(self._pool, [sequence.pages[index] for index in indices])
            self._link.offer(Offered(sequence.request.tenant, hashes, indices, copies))

    def arrive(self, wanted: Wanted, pages: Seq[bytes]) -> None:
        """Makes fetched pages findable, from the first that was lacking on, as far as there is room for them."""
        if (sought := self._sought.get(wanted.number)) is not None:
            sought.lacking -= len(pages)
        held = self._pages.match(wanted.hashes[: wanted.here])
        if len(held) == wanted.here:
            for digest, data in zip(wanted.hashes[wanted.here :], pages, strict=False):
                found = self._pages.match([digest])
                if not found and not self._pages.available:
                    break
                held.append(found[0] if found else self._write(digest, data, held))
        self._pages.release(held)

    def ended(self, wanted: Wanted) -> None:
        """Resumes the sequence: no more pages will arrive."""
        if (sought := self._sought.pop(wanted.number, None)) is not None:
            self._scheduler.resume(sought.sequence)

    def _write(self, digest: bytes, data: bytes, before: list[int]) -> int:
        page = self._pages.allocate(before[-1] if before else None, "fetched")
        write_page(self._pool, page, data)
        self._pages.publish(page, digest)
        return page


def page_bytes(pool: KvPool) -> int:
    """Bytes of a page."""
    return sum(part[:, 0].numel() * part.element_size() for part in _parts(pool))


@torch.inference_mode()
def copy_pages(pool: KvPool, pages: Seq[int]) -> list[Tensor]:
    """Keys and values of pages, and the scales of 8-bit ones, [layers, pages, ...] on the pool's device."""
    chosen = torch.tensor(pages, device=pool.data.device)
    return [part.index_select(1, chosen) for part in _parts(pool)]


def to_bytes(copies: Seq[Tensor], place: int) -> bytes:
    """One of the pages that `copy_pages` copied, as it is stored: the slots of each layer in turn, then the scales."""
    pages = [part[:, place].contiguous().flatten().view(torch.uint8) for part in copies]
    return b"".join(page.cpu().numpy().tobytes() for page in pages)


@torch.inference_mode()
def write_page(pool: KvPool, page: int, data: bytes) -> None:
    """Writes `to_bytes` back, `page_bytes` of it."""
    start = 0
    for part in _parts(pool):
        slots = part.flatten(2).view(torch.uint8)[:, page]
        _fill(slots, data[start : start + slots.numel()])
        start += slots.numel()


def _fill(slots: Tensor, data: bytes) -> None:
    """Writes to uint8 [layers, n]; on a CPU without a copy in between, which takes several times as long."""
    if slots.device.type == "cpu":
        slots.numpy()[...] = numpy.frombuffer(data, numpy.uint8).reshape(slots.shape)
    else:
        slots.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(slots.shape))


def _parts(pool: KvPool) -> list[Tensor]:
    """Views [layers, pages, page_size, ...]."""
    kept = [part for part in (pool.data, pool.scales) if part is not None]
    return [part.view(part.shape[0], -1, pool.page_size, *part.shape[2:]) for part in kept]
