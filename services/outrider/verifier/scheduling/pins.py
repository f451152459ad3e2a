"""Pages that stay for what is to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.models.pages import PageTable


class Pins:
    """Holds pages by name, at most ``most`` different ones; the engine's thread alone calls it.

    Attributes:
        yielded: pages that were let go of because a sequence needed the room.
    """

    def __init__(self, pages: PageTable, most: int) -> None:
        self._pages, self._most = pages, most
        self._held: dict[str, list[int]] = {}
        self.yielded = 0

    @property
    def held(self) -> list[list[int]]:
        """The pages of each name."""
        return list(self._held.values())

    @property
    def names(self) -> list[str]:
        """What pages are held for."""
        return list(self._held)

    @property
    def count(self) -> int:
        """Different pages that are held."""
        return len(_all(self._held.values()))

    def hold(self, name: str, hashes: Sequence[bytes]) -> bool:
        """Holds the chain of pages that is published under ``hashes`` for ``name``, and nothing else for it.

        False, and nothing changes, where some are not there or do not fit.
        """
        found = self._pages.match(hashes)
        others = _all(held for other, held in self._held.items() if other != name)
        if len(found) < len(hashes) or len(others | set(found)) > self._most:
            self._pages.release(found)
            return False
        self.drop(name)
        self._held[name] = found
        return True

    def drop(self, name: str) -> None:
        """Lets go of what is held for ``name``."""
        self._pages.release(self._held.pop(name, []))

    def yield_one(self) -> bool:
        """Lets go of what was pinned last; whether there was anything."""
        if not self._held:
            return False
        name = next(reversed(self._held))
        self.yielded += len(self._held[name])
        self.drop(name)
        return True


def _all(held: Iterable[list[int]]) -> set[int]:
    return {page for pages in held for page in pages}
