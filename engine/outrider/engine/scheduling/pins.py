"""Pinned pages: they stay in the table without a sequence, for requests to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.engine.pages.page_table import PageTable


class Pins:
    """Pins pages by name, at most ``most`` different ones. Only the engine's thread calls it.

    Attributes:
        yielded: number of pages released because a sequence needed them.
    """

    def __init__(self, pages: PageTable, most: int) -> None:
        self._pages, self._most = pages, most
        self._held: dict[str, list[int]] = {}
        self.yielded = 0

    @property
    def held(self) -> list[list[int]]:
        """The page ids of each name."""
        return list(self._held.values())

    @property
    def names(self) -> list[str]:
        """The names that have pages."""
        return list(self._held)

    @property
    def count(self) -> int:
        """Number of different pinned pages."""
        return len(_all(self._held.values()))

    def hold(self, name: str, hashes: Sequence[bytes]) -> bool:
        """Pins the chain of pages published under ``hashes`` for ``name``, in place of its earlier pages.

        Returns False, and changes nothing, if a page is missing or the pages would exceed the limit.
        """
        page_ids = self._pages.match(hashes)
        others = _all(held for other, held in self._held.items() if other != name)
        if len(page_ids) < len(hashes) or len(others | set(page_ids)) > self._most:
            self._pages.release(page_ids)
            return False
        self.drop(name)
        self._held[name] = page_ids
        return True

    def drop(self, name: str) -> None:
        """Releases the pages of ``name``."""
        self._pages.release(self._held.pop(name, []))

    def yield_one(self) -> bool:
        """Releases the pages of the name pinned last; False if nothing is pinned."""
        if not self._held:
            return False
        name = next(reversed(self._held))
        self.yielded += len(self._held[name])
        self.drop(name)
        return True


def _all(held: Iterable[list[int]]) -> set[int]:
    return {page for pages in held for page in pages}
