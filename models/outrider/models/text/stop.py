"""Stop strings: a generation's text ends before the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.models.text.errors import TextError


class StopMatcher:
    """Finds the first stop string in a text that arrives in pieces, wherever the pieces are cut.

    The first is the one that is complete first (of those that end together, the longest), as if every
    character had been looked at when it came. ``stopped`` tells whether one was found; after that, push no
    more. `TextError` for an empty stop string.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        if "" in stop_strings:
            raise TextError("a stop string may not be empty")
        self._stops = tuple(dict.fromkeys(stop_strings))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may now be emitted, and whether a stop string ended it.

        A suffix that may begin a stop string is held back.
        """
        if not self._stops:
            return text, False
        seen = self._held + text
        start = self._first_stop(seen)
        if start is not None:
            self._held, self.stopped = "", True
            return seen[:start], True
        cut = self._possible_start(seen)
        self._held = seen[cut:]
        return seen[:cut], False

    def flush(self) -> str:
        """The text held back, once it is known that nothing follows."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> int | None:
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_start(self, text: str) -> int:
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[start:]
            if any(stop.startswith(tail) for stop in self._stops):
                return start
        return len(text)
