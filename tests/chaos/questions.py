"""Requests to a disturbed mesh: seeded streams at temperature 1, with parameters that change draws or outputs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from outrider.measure.load import prompts

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 60, "maxLength": 120},
        "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 20, "maxItems": 40},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "store", "parameters": _SCHEMA}}
_PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.3, "logit_bias": {"10": 1.5}}
_KINDS: list[dict[str, Any]] = [
    {"n": 2},
    {"structured_outputs": {"json": _SCHEMA}, "ignore_eos": False},
    _PENALTIES,
    {"logprobs": 3, "echo": True},
    {"stop": ["\n\n\n", "class Z"]},
    {"temperature": 0.0},
    {"top_k": 20, "top_p": 0.9, "min_p": 0.02},
    {"structured_outputs": {"regex": "([a-z]{2,9} = [0-9]{1,5}\n){40,60}"}, "ignore_eos": False},
    {
        "structured_outputs": {"grammar": 'start: line+\nline: /[a-z]{3,9}/ " -> " /[0-9]{1,4}/ "\\n"\n'},
        "ignore_eos": False,
    },
    {"speculation": "off"},
    {"coalesce": False},
    {"priority": 5, "timeout_ms": 600_000},
    {"messages": True},
    {"messages": True, "tools": [_TOOL], "tool_choice": "required", "ignore_eos": False},
    {"messages": True, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}}}
    | {"ignore_eos": False},
]
"""With the plain request, sixteen kinds. ``messages`` makes a chat of the prompt."""


@dataclass(frozen=True)
class Question:
    """A request that always has the same answer; a plain HTTP client reads a ``raw`` one."""

    body: dict[str, Any]
    raw: bool


def questions(count: int, least: int, most: int) -> list[Question]:
    """``count`` questions with answers of ``least`` to ``most`` tokens: half have no extras, every third is raw."""
    texts, draw = prompts.held_out(300), random.Random(7)
    return [
        Question(_body(texts[number % len(texts)], number, draw.randint(least, most)), raw=number % 3 == 0)
        for number in range(count)
    ]


def _body(prompt: str, number: int, max_tokens: int) -> dict[str, Any]:
    output = {"stream": True, "stream_options": {"include_usage": True}, "return_tokens": True}
    drawn = {"temperature": 1.0, "seed": number, "max_tokens": max_tokens, "ignore_eos": True}
    extra = _KINDS[number // 2 % len(_KINDS)] if number % 2 else {}
    body = {"model": "pocket", "prompt": prompt, **output, **drawn, **extra}
    return body | {"messages": [{"role": "user", "content": body.pop("prompt")}]} if "messages" in extra else body
