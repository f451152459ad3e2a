"""The pages that sequences hold: found by chain hash, allocated, published, released."""

from __future__ import annotations

from array import array
from contextlib import suppress

from outrider.engine.pages.page_names import chain_hash, chain_salt
from outrider.engine.pages.page_table import OutOfPages, PageTable
from outrider.engine.requests.sequence import Sequence


class SequencePages:
    """Moves pages between a page table and the sequences. ``vocabulary`` and the tenant salt every chain of hashes."""

    def __init__(self, pages: PageTable, page_size: int, vocabulary: bytes) -> None:
        self.pages, self._size, self._vocabulary = pages, page_size, vocabulary

    def needed(self, tokens: int) -> int:
        """Number of pages for ``tokens`` tokens."""
        return -(-tokens // self._size)

    def room(self, sequence: Sequence) -> int:
        """Tokens behind the computed ones that have a place in the sequence's pages; 0 if it does not run."""
        return len(sequence.pages) * self._size - sequence.cached

    def owed(self, sequence: Sequence) -> int:
        """Number of pages that the sequence's tokens still need."""
        return max(self.needed(len(sequence.tokens)) - len(sequence.pages), 0)

    def reuse(self, sequence: Sequence) -> None:
        """Takes published pages that hold the beginning of the sequence; its last token always runs."""
        sequence.pages = array("i", self.pages.match(self._usable(sequence)))
        sequence.published = len(sequence.pages)
        sequence.cached = len(sequence.pages) * self._size

    def chain(self, sequence: Sequence) -> tuple[list[bytes], int]:
        """Hashes of the pages that `reuse` could take, and how many leading ones are in the table."""
        hashes = self._usable(sequence)
        return hashes, self.pages.leading(hashes)

    def _usable(self, sequence: Sequence) -> list[bytes]:
        """Hashes of the pages in which no token has to run: for its score, its hidden states, or as the last one."""
        tokens = len(sequence.tokens) - 1
        if sequence.runs_all or sequence.whole:
            tokens = 0 if sequence.runs_all else min(tokens, sequence.stated)
        return [self._hash(sequence, index) for index in range(tokens // self._size)]

    def grow(self, sequence: Sequence, tokens: int, cause: str = "sequence") -> None:
        """Allocates pages for ``tokens`` tokens; on `OutOfPages` the sequence keeps those allocated so far.

        ``cause`` is reported for pages that are evicted.
        """
        while len(sequence.pages) < self.needed(tokens):
            sequence.pages.append(self.pages.allocate(sequence.pages[-1] if sequence.pages else None, cause))

    def stretch(self, sequence: Sequence, rows: int, wanted: int, cause: str = "sequence") -> int:
        """Takes free pages for ``wanted`` rows behind the step's other ``rows``; how many of them find a place."""
        if len(sequence.pages) * self._size < sequence.cached + rows + wanted:
            with suppress(OutOfPages):
                self.grow(sequence, sequence.cached + rows + wanted, cause)
        return min(wanted, self.room(sequence) - rows)

    def settle(self, sequence: Sequence, cached: int) -> None:
        """Notes that the leading ``cached`` tokens are in their pages: publishes full pages, releases spare ones."""
        sequence.cached = cached
        while (sequence.published + 1) * self._size <= cached:
            index = sequence.published
            self.pages.publish(sequence.pages[index], self._hash(sequence, index), sequence.request.tenant)
            sequence.published += 1
        if len(sequence.pages) * self._size - len(sequence.tokens) >= self._size:
            keep = self.needed(len(sequence.tokens))
            self.pages.release(sequence.pages[keep:])
            del sequence.pages[keep:]

    def drop(self, sequence: Sequence) -> None:
        """Releases all pages."""
        self.pages.release(sequence.pages)
        sequence.pages, sequence.cached, sequence.published = array("i"), 0, 0

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        for page in range(len(sequence.hashes), index + 1):
            request = sequence.request
            salt = chain_salt(self._vocabulary, request.tenant, request.cache_salt)
            parent = sequence.hashes[-1] if page else salt
            sequence.hashes.append(chain_hash(parent, sequence.tokens[page * self._size : (page + 1) * self._size]))
        return sequence.hashes[index]
