"""Stop strings: a text ends before its first stop string."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.text.errors import TextError


class StopMatcher:
    """Finds the first stop string in a text that arrives in pieces, however the pieces are cut.

    The first stop string is the one that ends first; of several with the same end, the longest. Once it is ``found``,
    `push` may not be called again. The text before the end ``keeps`` that string, or not. `TextError` for an empty stop
    string.
    """

    def __init__(self, stop_strings: Sequence[str], *, keeps: bool = False) -> None:
        self._keeps = keeps
        if "" in stop_strings:
            raise TextError("a stop string may not be empty")
        self._stops = tuple(dict.fromkeys(stop_strings))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be sent now, and whether a stop string ended it.

        Holds back a suffix that may begin a stop string.
        """
        if not self._stops:
            return text, False
        pending = self._held + text
        first = self._first_stop(pending)
        if first is not None:
            start, end = first
            self._held, self.found = "", pending[start:end]
            return pending[: end if self._keeps else start], True
        cut = self._possible_start(pending)
        self._held = pending[cut:]
        return pending[:cut], False

    def flush(self) -> str:
        """The text held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first stop string; None if there is none."""
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(matches)[::-1] if matches else None

    def _possible_start(self, text: str) -> int:
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[start:]
            if any(stop.startswith(tail) for stop in self._stops):
                return start
        return len(text)
