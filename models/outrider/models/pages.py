"""KV pages: who holds them, which are shared by prefix, which are free."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence


class OutOfPages(Exception):
    """No page is free and none that is merely cached can be taken back."""


class PageTable:
    """Hands out pages, consecutive where it can, and finds pages whose content is wanted again.

    A full, committed page is *published* under the hash of its tokens and of the page before it. When its last
    holder releases it, it stays findable until its room is needed, oldest first.
    """

    def __init__(self, pages: int) -> None:
        self.total = pages
        self._free = set(range(pages))
        self._holders = [0] * pages
        self._hash_of: dict[int, bytes] = {}
        self._page_of: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Pages that could be allocated now."""
        return len(self._free) + len(self._idle)

    def allocate(self, after: int | None) -> int:
        """A page, the one behind ``after`` where that is free; `OutOfPages` when none can be had.

        What is merely cached gives way only when nothing is free.
        """
        page = self._choose(after)
        self._free.discard(page)
        if page in self._idle:
            del self._idle[page]
            del self._page_of[self._hash_of.pop(page)]
        self._holders[page] = 1
        return page

    def _choose(self, after: int | None) -> int:
        if after is not None and after + 1 in self._free:
            return after + 1
        if self._free:
            return self._longest_gap() if after is None else min(self._free)
        if self._idle:
            return next(iter(self._idle))
        raise OutOfPages

    def _longest_gap(self) -> int:
        best = start = length = longest = 0
        for page in range(self.total):
            if page not in self._free:
                length = 0
                continue
            start = page if length == 0 else start
            length += 1
            if length > longest:
                best, longest = start, length
        return best

    def publish(self, page: int, digest: bytes) -> None:
        """Makes a full page that will not change findable. A second page of the same content stays private."""
        if digest not in self._page_of:
            self._page_of[digest] = page
            self._hash_of[page] = digest

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """The leading pages that are held under ``hashes``; the caller holds them from now on."""
        found = []
        for digest in hashes:
            page = self._page_of.get(digest)
            if page is None:
                break
            self._holders[page] += 1
            self._idle.pop(page, None)
            found.append(page)
        return found

    def leading(self, hashes: Sequence[bytes]) -> int:
        """How many pages `match` would find."""
        return next((count for count, digest in enumerate(hashes) if digest not in self._page_of), len(hashes))

    def release(self, pages: Sequence[int]) -> None:
        """Gives pages back; later pages of a prefix are forgotten before the earlier ones."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page] == 0:
                if page in self._hash_of:
                    self._idle[page] = None
                else:
                    self._free.add(page)

    def check(self, held: Sequence[Sequence[int]]) -> None:
        """`AssertionError` unless exactly the pages in ``held`` are held, and every other can be allocated."""
        holders = [0] * self.total
        for pages in held:
            for page in pages:
                holders[page] += 1
        if holders != self._holders:
            wrong = [page for page in range(self.total) if holders[page] != self._holders[page]]
            raise AssertionError(f"pages {wrong[:8]} are not held as often as they are used")
        if self.available != holders.count(0):
            raise AssertionError(f"{self.available} pages are free, but {holders.count(0)} have no holder")


def chain_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Name of a page: SHA-256 over its parent's name (or the chain's salt) and its tokens."""
    return hashlib.sha256(parent + array("i", tokens).tobytes()).digest()
