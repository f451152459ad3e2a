"""Arguments between tags, each with its name, as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec
from outrider.gateway.schemas.parameters import ANY, ParameterTypes, kinds
from outrider.gateway.tool_calls.json_scanner import JsonScanner
from outrider.gateway.tool_calls.matching import beginning
from outrider.wire.call_formats.call_format import Tags

WORDS = {"True": True, "False": False, "None": None}
"""Python's names, which templates write for values of JSON that are no objects and no arrays."""
_FIRST = {"object": "{", "array": "[", "integer": "-0123456789", "number": "-0123456789"}
_NAMES = {"boolean": ("true", "false", "True", "False"), "null": ("null", "None")}


class TaggedArguments:
    """Reads arguments between ``tags``; they end where no other begins.

    A value that may only be a string is one as it stands. Another one is JSON if its type is possible, else a string.
    """

    def __init__(self, tags: Tags, types: ParameterTypes) -> None:
        self._tags, self._types = tags, types
        self._count, self._value = 0, _Value(ANY)
        self._inside = False
        self.whole = False

    def split(self, text: str) -> tuple[str, str]:
        """The JSON that ``text`` completes, and the rest, to be given again with the text after it."""
        out = ""
        while not self.whole:
            made, rest = self._read_value(text) if self._inside else self._read_name(text)
            out += made
            if rest == text and not self.whole:
                break
            text = rest
        return out, text

    def _read_name(self, text: str) -> tuple[str, str]:
        opening, middle = self._tags.opening, self._tags.middle
        if text and not text.startswith(opening) and not opening.startswith(text):
            self.whole = True
            return "}" if self._count else "{}", text
        middles = (each for each in (middle, self._tags.json_middle) if each and each in text)
        if (found := min(middles, key=text.index, default=None)) is None:
            return "", text
        name, _, rest = text[len(opening) :].partition(found)
        types = frozenset(self._types.get(name, self._types.get("", tuple(ANY))))
        if self._tags.json_middle:  # a string where the schema allows none is read by the schema
            types = types & {"string"} or types if found == middle else types - {"string"} or ANY - {"string"}
        self._value, self._inside = _Value(types), True
        self._count += 1
        return f"{', ' if self._count > 1 else '{'}{_quoted(name)}: ", rest

    def _read_value(self, text: str) -> tuple[str, str]:
        closing = self._tags.closing
        made, text, ended = self._value.read(text, closing)
        self._inside = not ended
        return made, text


class _Value:
    """One value, whose type is one of ``types``."""

    def __init__(self, types: Collection[str]) -> None:
        self._types = types
        self._textual: bool | None = True if set(types) == {"string"} else None
        self._scanner: JsonScanner | None = None
        self._begun = False

    def read(self, text: str, closing: str) -> tuple[str, str, bool]:
        """The JSON that ``text`` completes, the rest, and whether the value ended."""
        place = beginning(text, closing)
        value, ended = text[:place], text.startswith(closing, place)
        after = text[place + len(closing) :] if ended else text[place:]
        if self._textual is None and self._scanner is None:
            self._decide(value)
            if ended and self._scanner is None:
                return self._whole(value), after, True
        if self._scanner is not None:
            return self._read_json(text, closing)
        if not self._textual or not (value or ended):
            return "", text, False
        quote = "" if self._begun else '"'
        self._begun = True
        return quote + _quoted(value)[1:-1] + ('"' if ended else ""), after, ended

    def _read_json(self, text: str, closing: str) -> tuple[str, str, bool]:
        """The next part of an object or an array, which may hold the text that closes values."""
        assert self._scanner is not None
        made = ""
        if not self._scanner.whole:
            made, text = self._scanner.split(text)
        place = beginning(text, closing) if self._scanner.whole else len(text)
        if text.startswith(closing, place):
            return made, text[place + len(closing) :], True
        return made, text, False

    def _decide(self, value: str) -> None:
        """Finds out, as soon as ``value`` tells, whether it is a string, an object or an array."""
        begun = value.lstrip()
        if not begun:
            return
        if "string" not in self._types:
            self._scanner = JsonScanner() if begun[0] in "{[" else None
            return
        possible = any(begun[0] in _FIRST.get(kind, "") for kind in self._types)
        names = (name for kind in self._types for name in _NAMES.get(kind, ()))
        self._textual = None if possible or any(name.startswith(begun.rstrip()) for name in names) else True

    def _whole(self, text: str) -> str:
        """The JSON of a value that is ``text``."""
        said = text.strip()
        try:
            value: Any = WORDS[said] if said in WORDS else msgspec.json.decode(said)
        except (msgspec.DecodeError, RecursionError):
            return _quoted(text)
        if "string" in self._types and (isinstance(value, str) or not set(kinds(value)) & set(self._types)):
            return _quoted(text)
        return json.dumps(value) if said in WORDS else said


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
