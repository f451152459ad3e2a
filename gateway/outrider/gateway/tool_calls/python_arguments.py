"""Keyword arguments of Python, such as ``a=1, b='x', c=[True, None]``, as JSON."""

from __future__ import annotations

import json
import re

_NAMES = {"True": "true", "False": "false", "None": "null"}
_NAME = re.compile(r"[A-Za-z_]\w*")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
_LONGEST = {"x": 4, "u": 6, "U": 10}
"""Characters of the escapes that begin with these letters."""


class PythonArguments:
    """Reads literals behind names, and ends before the bracket that closes the call.

    JSON's own names and strings are read, too. A tuple becomes an array.
    """

    def __init__(self) -> None:
        self._count, self._closing, self._quote = 0, list[str](), ""
        self._named = False
        self.whole = False

    def split(self, text: str) -> tuple[str, str]:
        """The JSON that ``text`` completes, and the rest, to be given again with the text after it."""
        out = ""
        while text and not self.whole:
            made, rest = self._read(text)
            out += made
            if rest == text:
                break
            text = rest
        return out, text

    def _read(self, text: str) -> tuple[str, str]:
        if self._quote:
            return self._read_string(text)
        if text[0].isspace():
            return "", text[1:]
        if not self._closing and (text[0] == ")" or not self._named):
            return self._read_name(text)
        return self._read_value(text)

    def _read_name(self, text: str) -> tuple[str, str]:
        """The name of the next argument, or the end."""
        if text[0] == ")":
            self.whole = True
            return "}" if self._count else "{}", text
        name, found, rest = text.partition("=")
        if not found:
            return "", text
        self._count += 1
        self._named = True
        return f"{', ' if self._count > 1 else '{'}{json.dumps(name.strip(), ensure_ascii=False)}: ", rest

    def _read_value(self, text: str) -> tuple[str, str]:
        first, rest = text[0], text[1:]
        if first in "'\"":
            self._quote = first
            return '"', rest
        if first in "[({":
            self._closing.append("}" if first == "{" else "]")
            return "{" if first == "{" else "[", rest
        if first in "])}" and self._closing:
            return self._closing.pop(), rest
        if first == ",":
            self._named = bool(self._closing)
            return ", " if self._closing else "", rest
        if first == ":":
            return ": ", rest
        if (name := _NAME.match(text)) is not None:
            known = _NAMES.get(name[0], name[0])
            return ("", text) if name.end() == len(text) else (known, text[name.end() :])
        return first, rest

    def _read_string(self, text: str) -> tuple[str, str]:
        first = text[0]
        if first == self._quote:
            self._quote = ""
            return '"', text[1:]
        if first != "\\":
            plain = re.split(r"[\\" + self._quote + "]", text, maxsplit=1)[0]
            return _inside(plain), text[len(plain) :]
        if len(text) < _LONGEST.get(text[1:2], 2) or (text[1:2].isdigit() and len(text) < 4):
            return "", text
        escape = _ESCAPE.match(text)
        if escape is None:
            return "\\\\", text[1:]
        *codes, octal, letter = escape.groups()
        code = next((int(digits, 16) for digits in codes if digits), int(octal, 8) if octal else -1)
        return _inside(_character(code, letter)), text[escape.end() :]


def _character(code: int, letter: str | None) -> str:
    if letter is None:
        return chr(min(code, 0x10FFFF))
    return _LETTERS.get(letter, letter if letter in "\\'\"/" else f"\\{letter}")


def _inside(text: str) -> str:
    """``text`` inside a string of JSON; halves of surrogate pairs stay escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)[1:-1]
    return json.dumps(text, ensure_ascii=False)[1:-1]
