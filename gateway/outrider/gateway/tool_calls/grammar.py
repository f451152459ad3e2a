"""Calls as a grammar: text is free, and what has begun as a call becomes one that its function's schema allows.

It is written in llguidance's dialect of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from __future__ import annotations

import json
import re

import msgspec
from outrider.gateway.requests.calling import Callee, Calling
from outrider.gateway.requests.request import Structure
from outrider.gateway.tool_calls.bare import head_pattern
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.calls import CallFormat, CallStyle

_AS_TEMPLATES_WRITE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Hugging Face's ``tojson`` writes it: a call that comes back in a chat's history is the text that it was."""


def call_structure(calling: Calling, style: CallStyle, text: Structure | None) -> Structure:
    """What an answer has to be that may, or has to, call; ``text`` is the JSON that it has to be where it talks."""
    return Structure(calling.param, Grammar(context_free=_Lark(style).grammar(calling, text)))


class _Lark:
    def __init__(self, style: CallStyle) -> None:
        self._format: CallFormat = style.format
        self._tokens = {mark.text: mark.token for mark in style.marks}

    def grammar(self, calling: Calling, text: Structure | None) -> str:
        form = self._format
        rules = [self._callee(place, callee) for place, callee in enumerate(calling.callees)]
        if calling.bare(text):
            rules += [*map(self._bare, range(len(rules)), calling.names), r"CLOSE: /[\x20\t\r\n]*\}/"]
        names = " | ".join(f"callee_{place}" for place in range(len(calling.callees)))
        return "\n".join(
            [
                "%llguidance {}",
                *self._start(calling, text),
                f"calls: {self._literal(form.first.removeprefix(form.trigger))} call{self._more(calling)}",
                f"call: ({names}) {self._literal(form.tail)}",
                *rules,
            ]
        )

    def _more(self, calling: Calling) -> str:
        """What follows the first call: others, or the blank before another, behind which the answer may end as well."""
        later = self._format.later
        repeated = min(calling.most, self._format.most) - 1
        if not repeated:
            return ""
        blank = later[: len(later) - len(later.lstrip())]
        return f" ({self._literal(later)} call){{0,{repeated}}}" + (f" {self._literal(blank)}?" if blank else "")

    def _start(self, calling: Calling, text: Structure | None) -> list[str]:
        """The rules of what comes before the rest of the first call, and of text instead."""
        trigger = self._literal(self._format.trigger)
        if not calling.may_talk:
            return [f"start: {trigger} calls"]
        if text is not None:
            return [f"start: {_json(text.grammar.json_schema)} | {trigger} calls"]
        bare = " | ".join(f"bare_{place} start" for place in range(len(calling.callees)))
        if not self._format.anywhere:
            return [f"start: TEXT | {trigger} calls | {bare}", self._text("", calling)]
        if self._format.trigger in self._tokens:
            return [f"start: TEXT | TEXT {trigger} calls | {bare}", self._text("(?s:.*)", calling)]
        return [
            f"start: TEXT | opened calls | {bare}",
            f"opened[lazy]: TEXT {trigger}",
            self._text("(?s:.*)", calling),
        ]

    def _text(self, before: str, calling: Calling) -> str:
        """Text that does not begin as a bare call, and that has no trigger behind ``before``: both would be calls."""
        return f"TEXT: /(?s:.*)/ & ~/{before}{self._trigger}(?s:.*)/ & ~/{head_pattern(calling.names)}(?s:.*)/"

    @property
    def _trigger(self) -> str:
        return re.escape(self._format.trigger).replace("/", r"\/")

    def _callee(self, place: int, callee: Callee) -> str:
        named = self._literal(json.dumps(callee.name) + self._format.middle)
        return f"callee_{place}: {named} arguments_{place}\narguments_{place}: {_json(callee.schema)}"

    def _bare(self, place: int, name: str) -> str:
        head = f"HEAD_{place}: /{head_pattern([name])}/"
        if not self._format.anywhere:
            head += f" & ~/{self._trigger}(?s:.*)/"
        return f"bare_{place}: HEAD_{place} arguments_{place} CLOSE\n{head}"

    def _literal(self, text: str) -> str:
        """``text`` as it is, but for marks that are tokens."""
        if not text:
            return ""
        marks = "|".join(map(re.escape, self._tokens)) or "(?!)"
        parts = filter(None, re.split(f"({marks})", text))
        return " ".join(f"<[{self._tokens[part]}]>" if part in self._tokens else json.dumps(part) for part in parts)


def _json(schema: str) -> str:
    said = {"x-guidance": _AS_TEMPLATES_WRITE} | msgspec.json.decode(schema)
    return f"%json {msgspec.json.encode(said).decode()}"
