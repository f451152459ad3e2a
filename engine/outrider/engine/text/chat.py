"""Chats that cannot forge turns: only the template may write special tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from outrider.engine.needs import need
from outrider.engine.text.errors import TextError
from outrider.engine.text.messages import Form, normal_messages

_MARKS = (range(0xFDD0, 0xFDF0), range(0xF0000, 0x110000))
"""Code points that are rarely or never exchanged: noncharacters, and the planes for private use."""


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


Messages = Sequence[Mapping[str, Any]]
_OPEN = "\ufdd0"
"""Noncharacter behind the text of a message that is left open."""


class Part(NamedTuple):
    """A part of a rendered chat; names of special tokens become special tokens only in a ``trusted`` part."""

    text: str
    trusted: bool


class Chat:
    """A chat template, with the special tokens that messages may not contain.

    A mark breaks up the name of a special token in a message before the template runs, and is removed afterwards. So
    every unbroken name is the template's own, or one that the template made of halves: SmolLM3's deletes ``/no_think``
    from the middle of a text. So the chat is rendered again with a mark behind every character that a name may begin
    with. If that text has other special tokens, it is the one that counts.
    """

    def __init__(self, source: str, names: Mapping[str, str], special_tokens: Collection[str]) -> None:
        need("jinja2", "chat templates")
        from outrider.engine.text.template import ChatTemplate

        self._template = ChatTemplate(source, names)
        self._form = Form.of(source, lambda messages: self._template.render(messages, None, False))
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = _any_of(longest_first)
        self._openings = _any_of(sorted({name[0] for name in longest_first}))

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> list[Part]:
        """The rendered chat in parts, to be encoded one by one; the template gets `normal_messages`.

        With ``continue_final_message``, the last message is left open, as transformers leaves it.
        """

        def render(messages: Messages, tools: Any, variables: Any) -> str:
            if continue_final_message:
                return self._left_open(messages, tools, variables)
            return self._template.render(messages, tools, add_generation_prompt, variables)

        messages, text = self._rendered(messages, lambda tried: render(tried, tools, variables))
        try:
            if not self._contains(self._openings, [messages, tools, variables]):
                return [Part(text, True)]
            named = self._contains(self._special, [messages, tools, variables])
        except RecursionError:
            raise TextError("messages or tools are nested too deeply") from None
        mark = _mark_for(text)

        def render_with_marks(places: re.Pattern[str]) -> str:
            inputs = [_mark(value, mark, places) for value in (messages, tools, variables)]
            return render(inputs[0], inputs[1], inputs[2])

        marked = render_with_marks(self._special) if named else text
        strict = render_with_marks(self._openings)
        if self._special.findall(marked) != self._special.findall(strict):
            return self._split(strict, mark)
        return self._split(marked, mark) if named else [Part(text, True)]

    def _rendered(self, messages: Messages, render: Callable[[Messages], str]) -> tuple[Messages, str]:
        """The messages in the form that the template accepts, and the rendered text."""
        tried = normal_messages(messages, self._form)
        try:
            return tried, render(tried)
        except TextError as error:
            refusal = error
        for form in self._form.others():
            if (other := normal_messages(messages, form)) != tried:
                with suppress(TextError):
                    return other, render(other)
        raise refusal

    def _left_open(self, messages: Messages, tools: Any, variables: Any) -> str:
        """The rendered text up to the end of the last message's text."""
        *others, last = messages
        if not last.get("content") or last.get("tool_calls"):
            raise TextError(f"messages[{len(others)}] must have a text, and no calls, to be continued")
        opened = {**last, "content": f"{last['content']}{_OPEN} "}
        text, found, rest = self._template.render([*others, opened], tools, False, variables).rpartition(_OPEN)
        if not found:
            raise TextError("the chat template leaves out the end of the last message, which is to be continued")
        return text if rest.startswith(" ") else text.rstrip()

    def _split(self, marked: str, mark: str) -> list[Part]:
        parts, start = [], 0
        for name in self._special.finditer(marked):
            parts += [Part(marked[start : name.start()].replace(mark, ""), False), Part(name[0], True)]
            start = name.end()
        parts.append(Part(marked[start:].replace(mark, ""), False))
        return [part for part in parts if part.text]

    def _contains(self, places: re.Pattern[str], value: Any) -> bool:
        if isinstance(value, str):
            return places.search(value) is not None
        if isinstance(value, Mapping):
            return any(self._contains(places, inner) for inner in (*value, *value.values()))
        return isinstance(value, Sequence) and any(self._contains(places, inner) for inner in value)


def _mark_for(text: str) -> str:
    """A character that is not in ``text``."""
    used = set(text)
    free = (chr(code) for codes in _MARKS for code in codes if chr(code) not in used)
    if (mark := next(free, None)) is None:
        raise TextError("messages may not hold every character of Unicode's planes for private use")
    return mark


def _mark(value: Any, mark: str, places: re.Pattern[str]) -> Any:
    """``value`` with ``mark`` behind the first character of each of ``places`` in its texts."""
    if isinstance(value, str):
        return places.sub(lambda found: found[0][0] + mark + found[0][1:], value)
    if isinstance(value, Mapping):
        return {_mark(key, mark, places): _mark(inner, mark, places) for key, inner in value.items()}
    return [_mark(inner, mark, places) for inner in value] if isinstance(value, Sequence) else value
