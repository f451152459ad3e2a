"""Finds the end of the JSON of a call's arguments."""

from __future__ import annotations


class ArgumentsScanner:
    """Reads the JSON of a call's arguments as it arrives; it ends before the bracket that closes the object around it.

    Attributes:
        whole: Whether the arguments have ended.
    """

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped = 0, False, False
        self.whole = False

    def split(self, text: str) -> tuple[str, str]:
        """The part of ``text`` that belongs to the arguments, and the rest."""
        for place, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif character == '"':
                self._quoted = not self._quoted
            elif self._quoted:
                self._escaped = character == "\\"
            elif character in "[{":
                self._depth += 1
            elif character in "]}":
                self._depth -= 1
                if self._depth < 0:
                    self.whole = True
                    return text[:place], text[place:]
        return text, ""
