"""The grammar of answers with calls: text is free, and each call fits the schema of its function.

It is written in llguidance's dialect of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from __future__ import annotations

import json
import re

import msgspec
from outrider.gateway.request.generation import CallableFunction, CallRules, Structure
from outrider.gateway.tool_calls.bare_calls import head_pattern
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.calls import CallFormat, CallStyle

_AS_TEMPLATES_WRITE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Hugging Face's ``tojson`` writes it: a call in a chat's history then has the text that the model wrote."""


_RULE = re.compile(r" \(in the rule arguments_(\d+)\)$")


def call_structure(call_rules: CallRules, style: CallStyle, text: Structure | None) -> Structure:
    """The structure of an answer under ``call_rules``; ``text`` is the structure of text, or None."""
    return Structure(call_rules.param, Grammar(context_free=_Lark(style).grammar(call_rules, text)))


def with_function_name(message: str, call_rules: CallRules) -> str:
    """A verifier's ``message`` about the grammar, with the name of the function whose schema it is about."""
    return _RULE.sub(lambda found: f" (in the parameters of the function {call_rules.names[int(found[1])]})", message)


class _Lark:
    def __init__(self, style: CallStyle) -> None:
        self._format: CallFormat = style.format
        self._tokens = {mark.text: mark.token for mark in style.marks}

    def grammar(self, call_rules: CallRules, text: Structure | None) -> str:
        form = self._format
        rules = [self._callee(place, function) for place, function in enumerate(call_rules.functions)]
        if call_rules.bare(text):
            rules += [*map(self._bare, range(len(rules)), call_rules.names), r"CLOSE: /[\x20\t\r\n]*\}/"]
        names = " | ".join(f"callee_{place}" for place in range(len(call_rules.functions)))
        return "\n".join(
            [
                "%llguidance {}",
                *self._start(call_rules, text),
                f"calls: {self._literal(form.first.removeprefix(form.trigger))} call{self._further_calls(call_rules)}",
                f"call: ({names}) {self._literal(form.tail)}",
                *rules,
            ]
        )

    def _further_calls(self, call_rules: CallRules) -> str:
        """The rule for what follows the first call: more calls, or blanks before a call that does not come."""
        later = self._format.later
        repeated = min(call_rules.most, self._format.most) - 1
        if not repeated:
            return ""
        blank = later[: len(later) - len(later.lstrip())]
        return f" ({self._literal(later)} call){{0,{repeated}}}" + (f" {self._literal(blank)}?" if blank else "")

    def _start(self, call_rules: CallRules, text: Structure | None) -> list[str]:
        """The rules for text, and for the beginning of the first call."""
        trigger = self._literal(self._format.trigger)
        if not call_rules.may_talk:
            return [f"start: {trigger} calls"]
        if text is not None:
            return [f"start: {_json(text.grammar.json_schema)} | {trigger} calls"]
        bare = " | ".join(f"bare_{place} start" for place in range(len(call_rules.functions)))
        if not self._format.anywhere:
            return [f"start: TEXT | {trigger} calls | {bare}", self._text("", call_rules)]
        if self._format.trigger in self._tokens:
            return [f"start: TEXT | TEXT {trigger} calls | {bare}", self._text("(?s:.*)", call_rules)]
        return [
            f"start: TEXT | opened calls | {bare}",
            f"opened[lazy]: TEXT {trigger}",
            self._text("(?s:.*)", call_rules),
        ]

    def _text(self, before: str, call_rules: CallRules) -> str:
        """The rule for text that is no call: it has no trigger after ``before``, and no bare call at its beginning."""
        return f"TEXT: /(?s:.*)/ & ~/{before}{self._trigger}(?s:.*)/ & ~/{head_pattern(call_rules.names)}(?s:.*)/"

    @property
    def _trigger(self) -> str:
        return re.escape(self._format.trigger).replace("/", r"\/")

    def _callee(self, place: int, function: CallableFunction) -> str:
        named = self._literal(json.dumps(function.name) + self._format.middle)
        return f"callee_{place}: {named} arguments_{place}\narguments_{place}: {_json(function.schema)}"

    def _bare(self, place: int, name: str) -> str:
        head = f"HEAD_{place}: /{head_pattern([name])}/"
        if not self._format.anywhere:
            head += f" & ~/{self._trigger}(?s:.*)/"
        return f"bare_{place}: HEAD_{place} arguments_{place} CLOSE\n{head}"

    def _literal(self, text: str) -> str:
        """``text`` as literals of the grammar; a mark that is a token is named by its id."""
        if not text:
            return ""
        marks = "|".join(map(re.escape, self._tokens)) or "(?!)"
        parts = filter(None, re.split(f"({marks})", text))
        return " ".join(f"<[{self._tokens[part]}]>" if part in self._tokens else json.dumps(part) for part in parts)


def _json(schema: str) -> str:
    options = {"x-guidance": _AS_TEMPLATES_WRITE} | msgspec.json.decode(schema)
    return f"%json {msgspec.json.encode(options).decode()}"
