"""What the engine reports of its pages, to whatever stores pages elsewhere."""

from __future__ import annotations

from typing import Protocol

from outrider.verifier.requests.sequence import Sequence


class PageCache(Protocol):
    """What the engine tells of its pages; called in its thread."""

    def seek(self, sequence: Sequence) -> bool:
        """Asks for pages of a new sequence; whether it should wait for them."""

    def leave(self, sequence: Sequence) -> None:
        """Notes that a sequence has ended; it still has its pages."""

    def offer(self, sequence: Sequence) -> None:
        """Notes that a sequence may have new full pages."""


class NoCache:
    """A `PageCache` where there is none."""

    def seek(self, sequence: Sequence) -> bool:
        """See `PageCache`."""
        return False

    def leave(self, sequence: Sequence) -> None:
        """See `PageCache`."""

    def offer(self, sequence: Sequence) -> None:
        """See `PageCache`."""
