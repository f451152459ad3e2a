"""Regular expressions of JSON Schema, which are those of ECMAScript, in the compiler's notation.

What comes out is also an expression of Python's ``re``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LAST = 0x10FFFF
_SETS = {
    "d": [(0x30, 0x39)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "s": [
        *((0x9, 0xD), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
        *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
    ],
}
_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_ESCAPE = re.compile(
    r"\\(?:(?P<set>[dDwWsS])|(?P<control>[tnvfr]|0(?![0-9]))|c(?P<letter>[A-Za-z])"
    r"|u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|(?:x(?P<x>[0-9A-Fa-f]{2})|u(?P<u>[0-9A-Fa-f]{4})|u\{(?P<point>[0-9A-Fa-f]{1,6})\})|(?P<itself>[^A-Za-z0-9]))"
)
_GROUP = re.compile(r"\((?:\?(?:(?P<flag>i:)|:|P?<[A-Za-z_]\w*>))?(?!\?)")
_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
_ANY_BUT_LINE_ENDS = "[^\n\r\u2028\u2029]"
_LONGEST = 20_000
_LONGEST_WORD, _MOST_WORDS = 100, 200


class _Unknown(Exception):
    """A part of an expression that the compiler lacks."""


def translated(pattern: str) -> str | None:
    """``pattern`` for the compiler; None if the compiler lacks a part of it. Raises `re.error` if it is none."""
    if len(pattern) > _LONGEST:
        return None
    try:
        text = _Translation(pattern).text
        re.compile(text)
    except (_Unknown, RecursionError, OverflowError):
        return None
    return text


def all_but(texts: Iterable[str]) -> str | None:
    """An expression for every text but ``texts``; None if they are too many or too long."""
    words = set(texts)
    if len(words) > _MOST_WORDS or any(len(word) > _LONGEST_WORD for word in words):
        return None
    return f"^{_other(words)}$"


def _other(words: set[str]) -> str:
    behind: dict[str, set[str]] = {}
    for word in filter(None, words):
        behind.setdefault(word[0], set()).add(word[1:])
    first = "".join(map(re.escape, behind))
    longer = f"[^{first}][\\s\\S]*" if first else "[\\s\\S]+"
    known = [re.escape(letter) + _other(rest) for letter, rest in behind.items()]
    return f"(?:{'|'.join([*([] if '' in words else ['']), longer, *known])})"


class _Group:
    """A group that is open: what is before it, and what is in it so far."""

    def __init__(self, begun: bool) -> None:
        self.begun, self.ended, self.anchored = begun, False, False


class _Translation:
    """Reads an expression from left to right.

    The compiler takes anchors at the ends of the expression and of its alternatives only: ``_begun`` says whether
    something is before the place, ``_ended`` whether ``$`` is.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._begun = self._ended = self._anchored = self._repeatable = False
        self._groups = [_Group(False)]
        self.text = "".join(self._parts())

    def _parts(self) -> Iterable[str]:
        while self._at < len(self._pattern):
            part = self._part(self._pattern[self._at])
            self._repeatable = part == ")" or part[0] not in "|(*+?{" 
            yield part

    def _part(self, character: str) -> str:
        match character:
            case "^":
                self._at += 1
                if self._begun:
                    raise _Unknown
                self._anchored = self._groups[-1].anchored = True
                return "^"
            case "$":
                self._at += 1
                self._ended = self._begun = self._anchored = self._groups[-1].anchored = True
                return "$"
            case "|":
                self._at += 1
                self._groups[-1].ended |= self._ended
                self._begun, self._ended, self._anchored = self._groups[-1].begun, False, False
                return "|"
            case ")":
                return self._close()
            case "(":
                return self._open()
        if self._repeatable and (repeat := _REPEAT.match(self._pattern, self._at)):
            self._at, self._repeatable = repeat.end(), False
            if self._anchored:
                raise _Unknown
            return repeat[0]
        return self._atom(character)

    def _open(self) -> str:
        group = _GROUP.match(self._pattern, self._at)
        if group is None or self._ended:
            raise _Unknown
        self._at = group.end()
        self._groups.append(_Group(self._begun))
        return "(?i:" if group["flag"] else "(?:"

    def _close(self) -> str:
        self._at += 1
        if len(self._groups) == 1:
            raise re.error("unbalanced parenthesis")
        group = self._groups.pop()
        self._ended |= group.ended
        self._begun, self._anchored = True, group.anchored
        self._groups[-1].anchored |= group.anchored
        return ")"

    def _atom(self, character: str) -> str:
        if self._ended:
            raise _Unknown
        if character in "*+?":
            raise re.error("nothing to repeat")
        self._begun, self._anchored = True, False
        if character == "[":
            return self._class()
        if character == "\\":
            found = self._escape()
            return re.escape(found) if isinstance(found, str) else f"[{_ranges(found)}]"
        self._at += 1
        return _ANY_BUT_LINE_ENDS if character == "." else re.escape(character)

    def _class(self) -> str:
        negated = self._pattern.startswith("[^", self._at)
        self._at += 2 if negated else 1
        members: list[tuple[int, int]] = []
        while not self._pattern.startswith("]", self._at):
            first = self._member()
            if self._pattern.startswith("-", self._at) and not self._pattern.startswith("-]", self._at):
                self._at += 1
                last = self._member()
                if len(first) > 1 or len(last) > 1 or first[0][0] > last[0][1]:
                    raise _Unknown
                first = [(first[0][0], last[0][1])]
            members += first
        self._at += 1
        if not members and not negated:
            raise _Unknown
        return f"[{'^' if negated else ''}{_ranges(members)}]" if members else f"[{_ranges([(0, _LAST)])}]"

    def _member(self) -> list[tuple[int, int]]:
        if self._at >= len(self._pattern):
            raise re.error("unterminated character set")
        character = self._pattern[self._at]
        if character != "\\":
            self._at += 1
        elif self._pattern.startswith("\\b", self._at):
            self._at, character = self._at + 2, "\b"
        else:
            found = self._escape()
            if not isinstance(found, str):
                return found
            character = found
        return [(ord(character), ord(character))]

    def _escape(self) -> str | list[tuple[int, int]]:
        """The character or the set that an escape stands for."""
        escape = _ESCAPE.match(self._pattern, self._at)
        if escape is None:
            raise _Unknown
        self._at = escape.end()
        if name := escape["set"]:
            return _SETS[name] if name in _SETS else _complement(_SETS[name.lower()])
        if escape["control"]:
            return _CONTROLS[escape["control"]]
        if escape["letter"]:
            return chr(ord(escape["letter"]) % 32)
        if escape["high"]:
            return chr(0x10000 + (int(escape["high"], 16) - 0xD800) * 0x400 + int(escape["low"], 16) - 0xDC00)
        if escape["itself"]:
            return escape["itself"]
        point = int(escape["x"] or escape["u"] or escape["point"], 16)
        if point > _LAST or 0xD800 <= point < 0xE000:
            raise _Unknown
        return chr(point)


def _complement(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), _LAST]
    return [(first, last) for first, last in zip(starts, ends, strict=True) if first <= last]


def _ranges(ranges: list[tuple[int, int]]) -> str:
    return "".join(
        re.escape(chr(first)) + (f"-{re.escape(chr(last))}" if last > first else "") for first, last in ranges
    )
