"""Texts, expressions and schemas in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from outrider.wire.call_formats.call_format import ID

_AS_TEMPLATES_WRITE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Hugging Face's ``tojson`` writes it: a call in a chat's history then has the text that the model wrote."""


class Spelling:
    """Spells texts of a format, in which the names of ``tokens`` stand for these tokens."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens
        self._parts = re.compile(f"({'|'.join(map(re.escape, [*tokens, ID]))})")

    def of(self, text: str) -> str:
        """``text`` as literals; "" for an empty text."""
        return " ".join(map(self._part, filter(None, self._parts.split(text))))

    def cut(self, text: str) -> tuple[str, str] | None:
        """``text`` in front of its first token, and the rest as literals; None if there is no token in it."""
        before, *rest = self._parts.split(text) if self.tokens else [text]
        return (before, " ".join(map(self._part, filter(None, rest)))) if rest else None

    def _part(self, part: str) -> str:
        if part in self.tokens:
            return f"<[{self.tokens[part]}]>"
        return "/[A-Za-z0-9_-]+/" if part == ID else json.dumps(part)


def pattern(text: str) -> str:
    """An expression for ``text``."""
    return re.escape(text).replace("/", r"\/")


def as_templates_write(schema: str | dict[str, Any]) -> str:
    """The JSON of a ``schema``."""
    options = {"x-guidance": _AS_TEMPLATES_WRITE} | (msgspec.json.decode(schema) if isinstance(schema, str) else schema)
    return f"%json {msgspec.json.encode(options).decode()}"
