"""The one normal form of a chat's messages, which every template gets.

Clients send messages in many forms, and templates are written for the one that transformers makes: no null members, no
empty ``tool_calls``, arguments of calls as objects (https://huggingface.co/docs/transformers/chat_extras).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from outrider.engine.text.errors import TextError

Message = dict[str, Any]

_THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""Names of an answer's thoughts; the first one that a message has is copied to the others."""
_NUMBERED_IDS = "<|tool_call_argument_begin|>"
"""What stands behind the id of a call in templates of Kimi K2."""
_ASKS_FOR_NULL = re.compile(r"\bcontent\W*\s(is|is\s+not|==|!=)\s+none\b", re.IGNORECASE)
_NAMES_DEVELOPER = re.compile(r"""(['"])developer\1""")
_WORD, _KEY = "zqword", "zqkey"


class Form(NamedTuple):
    """What a template expects of messages where templates differ.

    Attributes:
        developer: it knows the role ``developer``; else that is ``system``.
        parts: it reads contents as lists of parts only; else contents are texts.
        nulls: it asks whether the content of calls is null, so that stays null; else null is an empty text.
        empty_nulls: it shows calls beside a content of null only, so an empty text beside calls becomes null.
        json_text: it writes arguments of calls as they are, so they have to be JSON texts; else they are objects.
        one_system: it takes one message of the system, so those at the beginning are joined.
        numbered_ids: it writes the ids of calls, which are `functions.name:number` over the whole chat
            (https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md).
    """

    developer: bool = False
    parts: bool = False
    nulls: bool = False
    empty_nulls: bool = False
    json_text: bool = False
    one_system: bool = False
    numbered_ids: bool = False

    @classmethod
    def of(cls, source: str, render: Callable[[list[Message]], str]) -> Form:
        """The form for the template ``source``, found by small chats that ``render`` makes texts of."""

        def text(messages: list[Message], form: Form) -> str:
            try:
                return render(normal_messages(messages, form))
            except TextError:
                return ""

        asks: Message = {"role": "user", "content": _WORD}
        form = cls(numbered_ids=_NUMBERED_IDS in source)
        if _WORD not in text([asks], form) and _WORD in text([asks], form._replace(parts=True)):
            form = form._replace(parts=True)
        if _NAMES_DEVELOPER.search(source):
            told = {"role": "developer", "content": _KEY}
            form = form._replace(developer=_KEY in text([told, asks], form._replace(developer=True)))
        call = {"id": "1", "type": "function", "function": {"name": _KEY, "arguments": {_KEY: _WORD}}}
        calls: list[Message] = [asks, {"role": "assistant", "content": None, "tool_calls": [call]}]
        if _ASKS_FOR_NULL.search(source) and _shows_call(text(calls, form._replace(nulls=True))):
            form = form._replace(nulls=True)
        calls[1]["content"] = ""
        return next((each for each in [form, *form.others()] if _shows_call(text(calls, each))), form)

    def others(self) -> list[Form]:
        """Forms to try with a chat that the template refuses in this form."""
        turned = self._replace(json_text=not self.json_text)
        nulls = [each._replace(nulls=True, empty_nulls=True) for each in (self, turned)]
        return [self._replace(one_system=True), turned, *nulls]


def normal_messages(messages: Sequence[Any], form: Form) -> list[Message]:
    """``messages`` in the form that a template expects.

    `TextError` names the place of what cannot be brought into it: ``messages[3].tool_calls[0].function.arguments``.
    """
    normal = [_message(message, f"messages[{place}]", form) for place, message in enumerate(messages)]
    if form.numbered_ids:
        _number_ids(normal)
    return _with_one_system(normal) if form.one_system else normal


def _message(message: Any, place: str, form: Form) -> Message:
    if not isinstance(message, Mapping):
        _refuse(place, "an object", message)
    normal = {key: value for key, value in message.items() if value is not None}
    if normal.get("role") == "developer" and not form.developer:
        normal["role"] = "system"
    thoughts = next((normal[name] for name in _THOUGHTS if name in normal), None)
    if thoughts is not None:
        normal = {**dict.fromkeys(_THOUGHTS, thoughts), **normal, _THOUGHTS[0]: thoughts}
    calls = normal.pop("tool_calls", None) or []
    content = message.get("content")
    if calls and ((form.nulls and content is None) or (form.empty_nulls and content == "")):
        normal["content"] = None
    else:
        normal["content"] = _content("" if content is None else content, f"{place}.content", form.parts)
    return {**normal, "tool_calls": _calls(calls, f"{place}.tool_calls", form.json_text)} if calls else normal


def _content(content: Any, place: str, as_parts: bool) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if as_parts else content
    if not isinstance(content, list):
        _refuse(place, "a string or an array of text parts", content)
    texts = [_part(part, f"{place}[{index}]") for index, part in enumerate(content)]
    return [{"type": "text", "text": text} for text in texts] if as_parts else "".join(texts)


def _part(part: Any, place: str) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    return text if isinstance(text, str) else _refuse(place, "a text part", part)


def _calls(calls: Any, place: str, json_text: bool) -> list[Message]:
    if not isinstance(calls, list):
        _refuse(place, "an array of calls", calls)
    return [_call(call, f"{place}[{index}]", json_text) for index, call in enumerate(calls)]


def _call(call: Any, place: str, json_text: bool) -> Message:
    """A call; one without ``function`` around name and arguments, which transformers takes as well, stays so."""
    if not isinstance(call, Mapping):
        _refuse(place, "an object", call)
    normal = {key: value for key, value in call.items() if value is not None}
    if "function" not in normal and "name" in normal:
        return _function(normal, place, json_text)
    return {**normal, "function": _function(normal.get("function"), f"{place}.function", json_text)}


def _function(function: Any, place: str, json_text: bool) -> Message:
    if not isinstance(function, Mapping):
        _refuse(place, "an object with a name and arguments", function)
    if not isinstance(function.get("name"), str):
        _refuse(f"{place}.name", "a string", function.get("name"))
    given = function.get("arguments")
    arguments = _arguments(given, f"{place}.arguments")
    if json_text:
        has_text = isinstance(given, str) and arguments
        return {**function, "arguments": given if has_text else json.dumps(arguments, ensure_ascii=False)}
    return {**function, "arguments": arguments}


def _arguments(value: Any, place: str) -> Message:
    """Arguments as an object. Clients send none, null or an empty text for a call without arguments."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_no_constant) if value.strip() else None
            json.dumps(value, ensure_ascii=False).encode()  # fails for half a pair of surrogates
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else f"no JSON: {error}"
            raise TextError(f"{place} must be a JSON object, and is {why}") from None
    return {} if value is None else value if isinstance(value, dict) else _refuse(place, "a JSON object", value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _shows_call(text: str) -> bool:
    """Whether the text has a function's name, and its arguments as JSON or by names and values, not in Python's way."""
    return text.count(_KEY) > 1 and _WORD in text.rpartition(_KEY)[2] and f"'{_KEY}'" not in text


def _with_one_system(messages: list[Message]) -> list[Message]:
    count = next((place for place, each in enumerate(messages) if each.get("role") != "system"), len(messages))
    contents = [each["content"] for each in messages[:count]]
    if count < 2 or not all(isinstance(content, str) for content in contents):
        return messages
    return [{**messages[0], "content": "\n\n".join(contents)}, *messages[count:]]


def _number_ids(messages: list[Message]) -> None:
    """Gives each call the id ``functions.name:number``, and results the ids of their calls."""
    ids: dict[Any, str] = {}
    count = 0
    for message in messages:
        for call in message.get("tool_calls", ()):
            name = call.get("function", call)["name"]
            given, call["id"] = call.get("id"), f"functions.{name}:{count}"
            ids[given] = call["id"]
            count += 1
        given = message.get("tool_call_id")
        if isinstance(given, str) and given in ids:
            message["tool_call_id"] = ids[given]


_KINDS = {list: "an array", dict: "an object", str: "a string", bool: "a truth value", type(None): "null"}


def _refuse(place: str, allowed: str, value: Any) -> NoReturn:
    raise TextError(f"{place} must be {allowed}, not {_KINDS.get(type(value), 'a number')}")
