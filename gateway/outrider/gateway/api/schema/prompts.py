"""Prompts in OpenAI's many forms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta
from outrider.gateway.request.generation import Messages, Prompt, Text, Tokens
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import INT32

PROMPTS = "a string, an array of strings, an array of token ids, or an array of such arrays"
MOST_PROMPTS = 128
MOST_IDS = 1 << 20
"""Most token ids of one prompt: as many as the longest contexts of open models."""
_MOST_NAMED = 4096
"""Most token ids among which a wrong one is named: to name it is slow."""
MOST_MESSAGES = 4096
MOST_PARTS = 1024
"""Most parts of one message's content."""
_MEDIA = frozenset(
    "image image_url input_image audio input_audio video video_url file input_file document".split()  # noqa: SIM905
)
"""Types of parts that hold no text, in all APIs."""
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""Templates may put a role between the halves of a special token's name."""


def prompts(
    value: str | Sequence[Any],
    add_special: bool = True,
    parse_special: bool | None = None,
    *,
    param: str = "prompt",
    most: int = MOST_PROMPTS,
) -> list[Prompt]:
    """The prompts in a completion's ``prompt``: texts, with the options of `Text`, or lists of token ids.

    ``param`` is the parameter's name, ``most`` how many prompts it may hold. Raises `InvalidRequest`.
    """
    if isinstance(value, str):
        return [Text(value, add_special, parse_special)]
    if len(value) > most and isinstance(value[0], (str, list)):
        raise InvalidRequest(f"{param}: {len(value)} prompts are more than {most}", param=param)
    if value and all(isinstance(entry, str) for entry in value):
        return [Text(entry, add_special, parse_special) for entry in value]
    if value and all(isinstance(entry, list) for entry in value):
        return [_tokens(entry, f"{param}[{place}]") for place, entry in enumerate(value)]
    if {str, list} & set(map(type, value)):
        _refuse(param, f"must be {PROMPTS}")
    return [_tokens(value, param)]


class PredictedPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A part of a prediction."""

    text: str


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="content"):
    """``prediction``: text that the client expects for an answer, in whole or in part."""

    content: Annotated[
        str | Annotated[list[PredictedPart], Meta(max_length=MOST_PARTS)],
        Meta(description=f"a string or an array of up to {MOST_PARTS} text parts"),
    ]

    @property
    def text(self) -> str:
        """The whole text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


TemplateKwargs = Annotated[
    dict[Annotated[str, Meta(pattern="^(?!(messages|tools|documents|add_generation_prompt)$)")], Any],
    Meta(
        description="an object of variables for the chat template, none of them called "
        "messages, tools, documents or add_generation_prompt"
    ),
]


def chat(messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None = None) -> Messages:
    """The prompt of a chat, with the template's ``variables``. The parts of a message's content become one text.

    Other members of messages go on unchanged: the tokenizer, which knows the template, makes messages normal. Raises
    `InvalidRequest`.
    """
    require_few_messages(messages, "messages")
    flat = [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]
    variables_json = msgspec.json.encode(variables).decode() if variables else ""
    return Messages(msgspec.json.encode(flat).decode(), variables=variables_json)


def require_few_messages(messages: Sequence[Any], param: str) -> None:
    """Raises `InvalidRequest` for more than `MOST_MESSAGES` messages."""
    if len(messages) > MOST_MESSAGES:
        _refuse(param, f"may hold up to {MOST_MESSAGES} entries, not {len(messages)}")


def require_text(content: Any, place: str) -> None:
    """Raises `InvalidRequest` for the first part of ``content``, at ``place``, that is an image, audio or a file."""
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in _MEDIA:
            _refuse(f"{place}[{index}].type", f"is {part['type']}: models here read text, no images, audio or files")


def _tokens(values: Sequence[Any], where: str) -> Tokens:
    if len(values) > MOST_IDS:
        _refuse(where, f"may hold up to {MOST_IDS} token ids, not {len(values)}")
    if set(map(type, values)) <= {int, float} and (ids := _whole(values)) and min(ids) >= 0 and max(ids) <= INT32:
        return Tokens(ids)
    if len(values) > _MOST_NAMED:
        _refuse(where, "must hold token ids, integers from 0 on")
    return Tokens([_token(value, f"{where}[{place}]") for place, value in enumerate(values)])


def _whole(values: Sequence[int | float]) -> list[int]:
    """``values`` as integers; no integers if one of them is a fraction."""
    ids = list(map(int, values))
    return ids if ids == values else []


def _token(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= INT32 or value != int(value):
        _refuse(where, "must be a token id")
    return int(value)


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or _ROLE.fullmatch(role) is None:
        _refuse(f"{place}.role", "must be a word like user, assistant or system")
    if isinstance(content, list):
        if len(content) > MOST_PARTS:
            _refuse(f"{place}.content", f"may hold up to {MOST_PARTS} parts, not {len(content)}")
        require_text(content, f"{place}.content")
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
