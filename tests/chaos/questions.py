"""Requests to a disturbed mesh: seeded streams at temperature 1, with parameters that change draws or outputs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from outrider.loadtest.load import prompts

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 60, "maxLength": 120},
        "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 20, "maxItems": 40},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}
_PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.3, "logit_bias": {"10": 1.5}}
_KINDS: list[dict[str, Any]] = [
    {"n": 2},
    {"structured_outputs": {"json": _SCHEMA}, "ignore_eos": False},
    _PENALTIES,
    {"logprobs": 3, "echo": True},
    {"stop": ["\n\n\n", "class Z"]},
]


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
    return {"model": "pocket", "prompt": prompt, **output, **drawn, **extra}
