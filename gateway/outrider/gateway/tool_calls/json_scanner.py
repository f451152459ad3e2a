"""Finds the end of a JSON value."""

from __future__ import annotations


class JsonScanner:
    """Reads a JSON value as it arrives; ``whole`` says whether it has ended.

    A number or a name ends before a blank, a comma, a closing bracket, or the beginning of a mark.
    """

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped, self._begun = 0, False, False, False
        self.whole = False

    def split(self, text: str) -> tuple[str, str]:
        """The part of ``text`` that belongs to the value, and the rest."""
        for place, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif character == '"':
                self._quoted = not self._quoted
                self.whole = not self._quoted and self._depth == 0
            elif self._quoted:
                self._escaped = character == "\\"
            elif character in "[{":
                self._depth += 1
            elif character in "]}":
                self._depth -= 1
                self.whole = self._depth <= 0
                if self._depth < 0:
                    return text[:place], text[place:]
            elif self._begun and self._depth == 0 and character in " \t\r\n,<":
                self.whole = True
                return text[:place], text[place:]
            if self.whole:
                return text[: place + 1], text[place + 1 :]
            self._begun = self._begun or not character.isspace()
        return text, ""
