"""The grammar of answers with calls: text is free, and each call fits the schema of its function.

It is written in llguidance's dialect of Lark (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from outrider.gateway.request.generation import CallableFunction, CallRules, Structure
from outrider.gateway.schemas.parameters import Parameters
from outrider.gateway.tool_calls.argument_grammars import PythonLark, TaggedLark
from outrider.gateway.tool_calls.bare_calls import head_pattern
from outrider.gateway.tool_calls.spelling import Spelling, as_templates_write, pattern
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.call_formats.call_format import NAME, CallFormat, Tags
from outrider.wire.calls import CallStyle

_RULE = re.compile(r" \(in the rule arguments_(\d+)\w*\)$")


def call_structure(call_rules: CallRules, style: CallStyle, text: Structure | None) -> Structure:
    """The structure of an answer under ``call_rules``; ``text`` is the structure of text, or None."""
    return Structure(call_rules.param, Grammar(context_free=_Lark(style).grammar(call_rules, text)))


def with_function_name(message: str, call_rules: CallRules) -> str:
    """A verifier's ``message`` about the grammar, with the name of the function whose schema it is about."""
    return _RULE.sub(lambda found: f" (in the parameters of the function {call_rules.names[int(found[1])]})", message)


class _Lark:
    def __init__(self, style: CallStyle) -> None:
        self._format: CallFormat = style.format
        self._spelling = Spelling({mark.text: mark.token for mark in style.marks})
        self._heads: list[tuple[str, str]] = []

    def grammar(self, call_rules: CallRules, text: Structure | None) -> str:
        form = self._format
        rules = [
            f"first: {self._call(form.head, len(form.trigger) if self._triggered else 0)}",
            f"further: {self._call(form.later)}" if form.later else "",
            *(self._callees(number, head, call_rules.names) for number, head in enumerate(self._heads)),
            *(self._arguments(place, function) for place, function in enumerate(call_rules.functions)),
        ]
        if call_rules.bare(text) and not form.turns:
            rules += [*map(self._bare, range(len(call_rules.names)), call_rules.functions), r"CLOSE: /[\x20\t\r\n]*\}/"]
        calls = f"calls: first{self._further_calls(call_rules)} {self._spelling.of(form.end)}"
        return "\n".join(filter(None, ["%llguidance {}", *self._start(call_rules, text), calls, *rules]))

    @property
    def _triggered(self) -> bool:
        """Whether calls begin with the text that no other text holds."""
        return all(head.startswith(self._format.trigger) for head in self._format.head)

    def _call(self, heads: Sequence[str], skipped: int = 0) -> str:
        """A call that begins with one of ``heads``, without the ``skipped`` characters at their beginning."""
        tail = " | ".join(map(self._spelling.of, self._format.tail))
        calls = []
        for head in heads:
            before, _, rest = head.partition(NAME)
            apart, whole = (before[skipped:], ("", rest)) if self._format.trigger else ("", (before, rest))
            if whole not in self._heads:
                self._heads.append(whole)
            calls.append(f"{self._spelling.of(apart)} callees_{self._heads.index(whole)}")
        return f"({' | '.join(calls)}) ({tail})" if tail else " | ".join(calls)

    def _callees(self, number: int, head: tuple[str, str], names: Sequence[str]) -> str:
        """Names, each between the parts of a ``head``, and with arguments.

        Where no text begins a call, the whole head is one literal: text cannot be told from less of it.
        """
        callees = (f"{self._spelling.of(name.join(head))} arguments_{place}" for place, name in enumerate(names))
        return f"callees_{number}: {' | '.join(callees)}"

    def _further_calls(self, call_rules: CallRules) -> str:
        """What follows the first call: more calls, or blanks before a call that does not come."""
        repeated = min(call_rules.most, self._format.most) - 1
        if not repeated:
            return ""
        later = self._format.later[0]
        blank = "" if self._format.end else later[: len(later) - len(later.lstrip())]
        return f" further{{0,{repeated}}}" + (f" {self._spelling.of(blank)}?" if blank else "")

    def _start(self, call_rules: CallRules, text: Structure | None) -> list[str]:
        """The rules for text, and for the beginning of the first call."""
        if self._format.turns:
            return self._turns(call_rules, text)
        trigger = self._spelling.of(self._format.trigger)
        if not call_rules.may_talk:
            return [f"start: {f'{self._spelling.of(self._format.gap)}? ' if self._format.gap else ''}{trigger} calls"]
        if text is not None:
            return [f"start: {as_templates_write(text.grammar.json_schema)} | {trigger} calls"]
        bare = " | ".join(f"bare_{place} start" for place in range(len(call_rules.functions)))
        if not self._format.anywhere:
            return [f"start: TEXT | {trigger} calls | {bare}", self._text("", call_rules)]
        if self._format.trigger in self._spelling.tokens:
            return [f"start: TEXT | TEXT {trigger} calls | {bare}", self._text("(?s:.*)", call_rules)]
        if cut := self._spelling.cut(self._format.trigger):
            opened = f"OPENED: /(?s:.*){pattern(cut[0])}/ & ~/{head_pattern(call_rules.names)}(?s:.*)/"
            return [f"start: TEXT | OPENED {cut[1]} calls | {bare}", opened, self._text("(?s:.*)", call_rules)]
        return [
            f"start: TEXT | opened calls | {bare}",
            f"opened[lazy]: TEXT {trigger}",
            self._text("(?s:.*)", call_rules),
        ]

    def _turns(self, call_rules: CallRules, text: Structure | None) -> list[str]:
        """The rules for text in turns, of which the last one is the answer."""
        *before, last = map(self._spelling.of, self._format.turns)
        end, next_ = map(self._spelling.of, self._format.between_turns)
        again = f"again: ({' | '.join(before)}) TEXT {end} {next_}"
        answer = "TEXT" if text is None else as_templates_write(text.grammar.json_schema)
        says = f"({last} answer | calls)" if call_rules.may_talk else "calls"
        return [f"start: ({next_})? again* {says}", again, f"answer: {answer}", "TEXT: /(?s:.*)/"]

    def _text(self, before: str, call_rules: CallRules) -> str:
        """The rule for text that is no call: it has no trigger after ``before``, and no bare call at its beginning."""
        trigger = self._trigger(call_rules.names)
        return f"TEXT: /(?s:.*)/ & ~/{before}{trigger}(?s:.*)/ & ~/{head_pattern(call_rules.names)}(?s:.*)/"

    def _trigger(self, names: Sequence[str]) -> str:
        """An expression for what begins calls of ``names``, and no text."""
        if self._format.trigger:
            return pattern(self._format.trigger)
        heads = (head.replace(NAME, name) for head in self._format.head for name in names)
        return f"({'|'.join(map(pattern, heads))})"

    def _arguments(self, place: int, function: CallableFunction) -> str:
        if self._format.arguments == "json":
            return f"arguments_{place}: {as_templates_write(function.schema)}"
        lark = TaggedLark if isinstance(self._format.arguments, Tags) else PythonLark
        return lark(self._format, self._spelling, f"arguments_{place}", Parameters.of(function.schema)).rules()

    def _bare(self, place: int, function: CallableFunction) -> str:
        head = f"HEAD_{place}: /{head_pattern([function.name])}/"
        if not self._format.anywhere:
            head += f" & ~/{self._trigger([function.name])}(?s:.*)/"
        if self._format.arguments == "json":
            return f"bare_{place}: HEAD_{place} arguments_{place} CLOSE\n{head}"
        rule = f"arguments_{place}_bare"
        return f"bare_{place}: HEAD_{place} {rule} CLOSE\n{head}\n{rule}: {as_templates_write(function.schema)}"
