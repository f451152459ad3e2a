"""The engine's interface to a cache of pages."""

from __future__ import annotations

from typing import Protocol

from outrider.engine.requests.sequence import Sequence


class PageCache(Protocol):
    """Stores pages outside the engine, which calls it in its own thread."""

    def seek(self, sequence: Sequence) -> bool:
        """Asks for pages of a new sequence; whether it should wait for them."""

    def leave(self, sequence: Sequence) -> None:
        """Notes that a sequence has ended; it still has its pages."""

    def offer(self, sequence: Sequence) -> None:
        """Notes that a sequence may have new full pages."""

    def offer_all(self, sequence: Sequence) -> int:
        """Offers all full pages of a sequence, also where they were offered before; returns how many are stored."""


class NoCache:
    """A `PageCache` that stores nothing."""

    def seek(self, sequence: Sequence) -> bool:
        """See `PageCache`."""
        return False

    def leave(self, sequence: Sequence) -> None:
        """See `PageCache`."""

    def offer(self, sequence: Sequence) -> None:
        """See `PageCache`."""

    def offer_all(self, sequence: Sequence) -> int:
        """See `PageCache`."""
        return 0
