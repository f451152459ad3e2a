"""Regular expressions of JSON Schema, which are those of ECMAScript, in the compiler's notation.

What comes out is an expression of Python's ``re`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SETS = {
    "d": "0-9",
    "D": "\x00-/:-\U0010ffff",
    "w": "0-9A-Z_a-z",
    "W": "\x00-/:-@\\[-\\^`{-\U0010ffff",
    "s": "\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    "S": "\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    "\u3001-\ufefe\uff00-\U0010ffff",
}
_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0", "b": "\b"}
_CHARACTER = (
    r"(?:\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}"
    r"|\\c[A-Za-z]|\\[tnvfr]|\\0(?![0-9])|\\[^A-Za-z0-9]|[^\\])"
)
_MEMBER = re.compile(rf"({_CHARACTER})-({_CHARACTER})|\\([dDwWsS])|({_CHARACTER}|\\b)", re.DOTALL)
_PART = re.compile(
    rf"""(?P<anchor>[\^$]) | (?P<or>\|) | (?P<close>\)) | (?P<open>\((?:\?(?:i:|:|P?<[A-Za-z_]\w*>)|(?!\?)))
    | (?P<repeat>(?:[*+?]|\{{\d+(?:,\d*)?\}})\??) | (?P<set>\.|\\[dDwWsS]|\[\^?(?:\\.|[^\]\\])+\])
    | (?P<character>(?!\(|\[){_CHARACTER})""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST = 20_000
_MOST_LETTERS = 2_000


class _Unknown(Exception):
    """A part of an expression that the compiler lacks."""


class _Group:
    """An open group: whether something is before it, and whether ``$`` and an anchor are in it."""

    def __init__(self, begun: bool) -> None:
        self.begun, self.ended, self.anchored = begun, False, False


def translated(pattern: str) -> str | None:
    """``pattern`` for the compiler; None if the compiler lacks a part of it. Raises `re.error` if it is malformed."""
    try:
        text = _translate(pattern) if len(pattern) <= _LONGEST else None
        if text is not None:
            re.compile(text)
    except (_Unknown, RecursionError, OverflowError):
        return None
    return text


def _translate(pattern: str) -> str:
    """The compiler takes anchors at the ends of alternatives only, and repeats no group that has one."""
    parts: list[str] = []
    at, groups = 0, [_Group(False)]
    begun = ended = anchored = False
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None or (ended and part.lastgroup in ("open", "set", "character")):
            raise _Unknown
        at, text = part.end(), part[0]
        match part.lastgroup:
            case "anchor":
                if text == "^" and begun:
                    raise _Unknown
                ended, anchored, groups[-1].anchored = text == "$" or ended, True, True
                begun = begun or ended
            case "or":
                groups[-1].ended |= ended
                begun, ended = groups[-1].begun, False
            case "open":
                groups.append(_Group(begun))
                text = text if text == "(?i:" else "(?:"
            case "close":
                if len(groups) == 1:
                    raise re.error("it closes a group that is not open")
                group = groups.pop()
                groups[-1].anchored |= group.anchored
                begun, ended, anchored = True, ended or group.ended, group.anchored
            case "repeat" if anchored or (parts and parts[-1][-1:] in "+?*"):
                raise _Unknown
            case "set" | "character":
                begun, anchored = True, False
                text = _set(text) if part.lastgroup == "set" else re.escape(_character(text))
        parts.append(text)
    return "".join(parts)


def _set(text: str) -> str:
    if text == ".":
        return "[^\n\r\u2028\u2029]"
    if text[0] == "\\":
        return f"[{_SETS[text[1]]}]"
    head = 2 if text[1] == "^" else 1
    members, at = [], head
    while at < len(text) - 1:
        member = _MEMBER.match(text, at, len(text) - 1)
        if member is None:
            raise _Unknown
        first, last, named, single = member.groups()
        at = member.end()
        members.append(
            _SETS[named] if named else "-".join(re.escape(_character(each)) for each in (first or single, last) if each)
        )
    return f"{text[:head]}{''.join(members)}]"


def _character(text: str) -> str:
    if text[0] != "\\":
        return text
    kind, digits = text[1], text[2:].strip("{}")
    if kind == "c":
        return chr(ord(digits) % 32)
    if kind not in "ux" or not digits:
        return _CONTROLS.get(kind, kind)
    if "\\u" in digits:
        return bytes.fromhex(digits.replace("\\u", "")).decode("utf-16-be")
    if int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) < 0xE000:
        raise _Unknown
    return chr(int(digits, 16))


def all_but(texts: Iterable[str]) -> str | None:
    """An expression for every text but ``texts``; None if they are too long."""
    words = set(texts)
    return f"^{_other(words)}$" if sum(map(len, words)) <= _MOST_LETTERS and max(map(len, words)) < 100 else None


def _other(words: set[str]) -> str:
    behind: dict[str, set[str]] = {}
    for word in filter(None, words):
        behind.setdefault(word[0], set()).add(word[1:])
    longer = f"[^{''.join(map(re.escape, behind))}][\\s\\S]*" if behind else "[\\s\\S]+"
    known = [re.escape(letter) + _other(rest) for letter, rest in behind.items()]
    return f"(?:{'|'.join([*([] if '' in words else ['']), longer, *known])})"
