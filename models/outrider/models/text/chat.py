"""Chats that cannot forge turns: only the template may write special tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from outrider.models.text.errors import TextError
from outrider.models.text.messages import template_messages
from outrider.models.text.template import ChatTemplate

_ASKS_FOR_NULL = re.compile(r"content\W*\s(is|is\s+not|==|!=)\s+none\b", re.IGNORECASE)
"""Matches templates that recognize a call by a content of null."""
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode's noncharacters are never exchanged


class Part(NamedTuple):
    """A part of a rendered chat; names of special tokens become special tokens only in a ``trusted`` part."""

    text: str
    trusted: bool


class Chat:
    """A chat template, with the special tokens that messages may not contain.

    A mark breaks up the name of a special token in a message before the template runs, and is removed afterwards. So
    every unbroken name is the template's own.
    """

    def __init__(self, source: str, names: Mapping[str, str], special_tokens: Collection[str]) -> None:
        self._template = ChatTemplate(source, names)
        self._nulls = _ASKS_FOR_NULL.search(source) is not None
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> list[Part]:
        """The rendered chat in parts, to be encoded one by one."""
        messages, text = self._rendered(messages, tools, add_generation_prompt, variables)
        try:
            if not self._contains_special([messages, tools, variables]):
                return [Part(text, True)]
        except RecursionError:
            raise TextError("messages or tools are nested too deeply") from None
        mark = next(mark for mark in _MARKS if mark not in text)
        inputs = self._mark(messages, mark), self._mark(tools, mark)
        marked = self._template.render(*inputs, add_generation_prompt, self._mark(variables, mark))
        return self._split(marked, mark)

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None,
    ) -> tuple[Sequence[Mapping[str, Any]], str]:
        """The messages in the form that the template accepts, converted or unchanged, and the rendered text."""
        converted = template_messages(messages, nulls=self._nulls)
        try:
            return converted, self._template.render(converted, tools, add_generation_prompt, variables)
        except TextError:
            if converted == messages:
                raise
            return messages, self._template.render(messages, tools, add_generation_prompt, variables)

    def _split(self, marked: str, mark: str) -> list[Part]:
        parts, start = [], 0
        for name in self._special.finditer(marked):
            parts += [Part(marked[start : name.start()].replace(mark, ""), False), Part(name[0], True)]
            start = name.end()
        parts.append(Part(marked[start:].replace(mark, ""), False))
        return [part for part in parts if part.text]

    def _contains_special(self, value: Any) -> bool:
        if isinstance(value, str):
            return self._special.search(value) is not None
        if isinstance(value, Mapping):
            return any(map(self._contains_special, [*value, *value.values()]))
        return isinstance(value, Sequence) and any(map(self._contains_special, value))

    def _mark(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            return self._special.sub(lambda name: name[0][0] + mark + name[0][1:], value)
        if isinstance(value, Mapping):
            return {self._mark(key, mark): self._mark(inner, mark) for key, inner in value.items()}
        return [self._mark(inner, mark) for inner in value] if isinstance(value, Sequence) else value
