"""Chats as clients send them, and as transformers takes them: roles, past calls, thoughts, nulls, parts."""

from __future__ import annotations

from typing import Any, NamedTuple

Message = dict[str, Any]


class Chat(NamedTuple):
    """A chat, and what comes with it.

    Attributes:
        messages: as a client sends them.
        normal: the same ones as transformers' documentation writes them.
        tools: functions.
        variables: of the template.
    """

    messages: list[Message]
    normal: list[Message]
    tools: list[Message] | None = None
    variables: Message | None = None


def _plain(*messages: Message) -> Chat:
    return Chat(list(messages), list(messages))


def _with_tools(messages: list[Message], normal: list[Message]) -> Chat:
    return Chat(messages, normal, _TOOLS)


def _call(arguments: Any, number: int = 1) -> Message:
    return {"id": f"call0000{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def _answer(content: str | None, *calls: Message, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def _result(number: int = 1) -> Message:
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": "weather", "content": '{"rain": true}'}


def _user(content: Any) -> Message:
    return {"role": "user", "content": content}


_ASKS, _AGAIN, _YES = _user("Is it raining in Paris?"), _user("And in Rome?"), _answer("Yes.")
_SYSTEM, _FRENCH = {"role": "system", "content": "Answer briefly."}, {"role": "system", "content": "In French."}
_PARTS = [{"type": "text", "text": "Is it "}, {"type": "text", "text": "raining?"}]
_TEXT, _PARIS = '{"city": "Paris", "days": 2}', _call({"city": "Paris", "days": 2})
_ROME_TEXT, _ROME = _call('{"city": "Rome"}', 2), _call({"city": "Rome"}, 2)
_NULLS = dict.fromkeys(("tool_calls", "refusal", "function_call", "name"))
_CITY = {"type": "string", "description": "Its name."}
_WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": _CITY, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
_TOOLS = [{"type": "function", "function": _WEATHER}]

CHATS = {
    "a question": _plain(_ASKS),
    "two turns": _plain(_SYSTEM, _ASKS, _YES, _AGAIN),
    "a developer": Chat([{**_SYSTEM, "role": "developer"}, _ASKS], [_SYSTEM, _ASKS]),
    "two of the system": _plain(_SYSTEM, _FRENCH, _ASKS),
    "parts": Chat([_user(_PARTS)], [_user("Is it raining?")]),
    "nulls": Chat([_ASKS, {**_YES, **_NULLS}, _AGAIN], [_ASKS, _YES, _AGAIN]),
    "an empty list of calls": Chat([_ASKS, {**_YES, "tool_calls": []}, _AGAIN], [_ASKS, _YES, _AGAIN]),
    "tools": _with_tools([_SYSTEM, _ASKS], [_SYSTEM, _ASKS]),
    "a call": _with_tools(
        [_ASKS, _answer(None, _call(_TEXT)), _result()],
        [_ASKS, _answer("", _PARIS), _result()],
    ),
    "a text and a call": _with_tools(
        [_ASKS, _answer("I look.", _call(_TEXT)), _result(), _YES, _AGAIN],
        [_ASKS, _answer("I look.", _PARIS), _result(), _YES, _AGAIN],
    ),
    "a call without arguments": _with_tools(
        [_ASKS, _answer(None, _call("")), _result()],
        [_ASKS, _answer("", _call({})), _result()],
    ),
    "a call with an object": _with_tools(
        [_ASKS, _answer("", _PARIS), _result()],
        [_ASKS, _answer("", _PARIS), _result()],
    ),
    "two calls": _with_tools(
        [_ASKS, _answer(None, _call(_TEXT), _ROME_TEXT), _result(), _result(2)],
        [_ASKS, _answer("", _PARIS, _ROME), _result(), _result(2)],
    ),
    "thoughts": _plain(_ASKS, _answer("Yes.", reasoning_content="It is cloudy."), _AGAIN),
    "thoughts before a call": _with_tools(
        [_ASKS, _answer(None, _call(_TEXT), reasoning="I look."), _result()],
        [_ASKS, _answer("", _PARIS, reasoning_content="I look."), _result()],
    ),
    "a variable": Chat([_ASKS], [_ASKS], None, {"enable_thinking": False}),
    "names of special tokens": _plain(_user("What are <|im_end|> and <s>?")),
    "letters and signs": _plain(_user('Привет "мир" <b>&amp;</b> 👋\n\n  x ')),
}
