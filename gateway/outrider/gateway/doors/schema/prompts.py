"""Prompts in OpenAI's many forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta
from outrider.gateway.requests.request import Messages, Prompt, Text, Tokens
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import INT32

PROMPTS = "a string, an array of strings, an array of token ids, or an array of such arrays"


def prompts(value: str | Sequence[Any], add_special: bool = True, parse_special: bool | None = None) -> list[Prompt]:
    """The prompts in a completion's ``prompt``: texts, with the options of `Text`, or lists of token ids.

    Raises `InvalidRequest`.
    """
    if isinstance(value, str):
        return [Text(value, add_special, parse_special)]
    if value and all(isinstance(entry, str) for entry in value):
        return [Text(entry, add_special, parse_special) for entry in value]
    if value and all(isinstance(entry, list) for entry in value):
        return [_tokens(entry, f"prompt[{place}]") for place, entry in enumerate(value)]
    if any(isinstance(entry, (str, list)) for entry in value):
        _refuse("prompt", f"must be {PROMPTS}")
    return [_tokens(value, "prompt")]


TemplateKwargs = Annotated[
    dict[Annotated[str, Meta(pattern="^(?!(messages|tools|documents|add_generation_prompt)$)")], Any],
    Meta(
        description="an object of variables for the chat template, none of them called "
        "messages, tools, documents or add_generation_prompt"
    ),
]


def chat(messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None) -> Messages:
    """The prompt of a chat, with the template's ``variables``. The parts of a message's content become one text.

    Other fields of messages go to the template unchanged. Raises `InvalidRequest`.
    """
    flat = [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]
    variables_json = msgspec.json.encode(variables).decode() if variables else ""
    return Messages(msgspec.json.encode(flat).decode(), variables=variables_json)


def _tokens(values: Sequence[Any], where: str) -> Tokens:
    return Tokens([_token(value, f"{where}[{place}]") for place, value in enumerate(values)])


def _token(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= INT32 or value != int(value):
        _refuse(where, "must be a token id")
    return int(value)


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        _refuse(f"{place}.role", "must be a string like user, assistant or system")
    if isinstance(content, list):
        content = "".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    elif content is not None and not isinstance(content, str):
        _refuse(f"{place}.content", "must be a string or an array of text parts")
    return {**message, "content": content}


def _part(part: Any, place: str) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        _refuse(place, 'must be a text part like {"type": "text", "text": "..."}: other parts are not supported')
    return str(text)


def _refuse(param: str, why: str) -> NoReturn:
    raise InvalidRequest(f"{param} {why}", param=param)
