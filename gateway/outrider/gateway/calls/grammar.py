"""Calls as a grammar: text is free, and what has begun as a call becomes one that its function's schema allows.

It is written in llguidance's dialect of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from __future__ import annotations

import json
import re

import msgspec
from outrider.gateway.calls.calling import Callee, Calling
from outrider.gateway.request import Structure
from outrider.wire.calls import CallFormat, CallStyle

_AS_TEMPLATES_WRITE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Hugging Face's ``tojson`` writes it: a call that comes back in a chat's history is the text that it was."""


def call_structure(calling: Calling, style: CallStyle, text: Structure | None) -> Structure:
    """What an answer has to be that may, or has to, call; ``text`` is the JSON that it has to be where it talks."""
    return Structure("context_free", calling.param, _Lark(style).grammar(calling, text))


class _Lark:
    def __init__(self, style: CallStyle) -> None:
        self._format: CallFormat = style.format
        self._tokens = {mark.text: mark.token for mark in style.marks}

    def grammar(self, calling: Calling, text: Structure | None) -> str:
        form = self._format
        rules = [self._callee(place, callee) for place, callee in enumerate(calling.callees)]
        names = " | ".join(f"callee_{place}" for place in range(len(rules)))
        repeated = min(calling.most, form.most) - 1
        more = f" ({self._literal(form.later)} call){{0,{repeated}}}" if repeated else ""
        calls = f"{self._literal(form.first.removeprefix(form.trigger))} call{more}".lstrip()
        return "\n".join(
            [
                "%llguidance {}",
                *self._start(calling, text),
                f"calls: {calls}",
                f"call: ({names}) {self._literal(form.tail)}",
                *rules,
            ]
        )

    def _start(self, calling: Calling, text: Structure | None) -> list[str]:
        """The rules of what comes before the rest of the first call, and of text instead."""
        trigger = self._literal(self._format.trigger)
        if not calling.may_talk:
            return [f"start: {trigger} calls"]
        if text is not None:
            return [f"start: {_json(text.definition)} | {trigger} calls"]
        if not self._format.anywhere:
            return [f"start: TEXT | {trigger} calls", self._text("")]
        if self._format.trigger in self._tokens:
            return [f"start: TEXT | TEXT {trigger} calls", self._text("(?s:.*)")]
        return ["start: TEXT | opened calls", f"opened[lazy]: TEXT {trigger}", self._text("(?s:.*)")]

    def _text(self, before: str) -> str:
        """Text in which the trigger does not stand behind ``before``, which else would be no call."""
        trigger = re.escape(self._format.trigger).replace("/", r"\/")
        return f"TEXT: /(?s:.*)/ & ~/{before}{trigger}(?s:.*)/"

    def _callee(self, place: int, callee: Callee) -> str:
        named = self._literal(json.dumps(callee.name) + self._format.middle)
        return f"callee_{place}: {named} {_json(callee.schema)}"

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
