"""Texts of a format, found at the beginning of a text that is still growing."""

from __future__ import annotations

import re

from outrider.wire.call_formats.call_format import ID

_WORD = re.compile(r"[A-Za-z0-9_-]*")


def fits(spelled: str, text: str) -> int | None:
    """Characters at the beginning of ``text`` that are ``spelled``, a text of a format; 0 if more text decides.

    None if ``text`` does not begin so, whatever follows it.
    """
    place = 0
    for number, literal in enumerate(spelled.split(ID)):
        if number and (word := _WORD.match(text, place)):
            place = word.end()
        found = text[place : place + len(literal)]
        if not literal.startswith(found):
            return None
        if len(found) < len(literal):
            return 0
        place += len(literal)
    return place


def beginning(text: str, head: str) -> int:
    """The index in ``text`` where ``head`` begins, or may begin once more text follows; else the length of ``text``."""
    index = text.find(head)
    if index >= 0:
        return index
    partial = range(max(0, len(text) - len(head) + 1), len(text))
    return next((place for place in partial if head.startswith(text[place:])), len(text))
