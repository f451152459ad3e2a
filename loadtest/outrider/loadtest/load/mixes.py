"""What is asked of a mesh whose answers are compared: prompts, temperatures, and what else may be asked of a draw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.loadtest.load import prompts

TEMPERATURES = (0.0, 0.7, 1.3)
CHARACTERS = 300
"""About 90 tokens of the shipped vocabulary."""

_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
MIXED: dict[str, dict[str, Any]] = {
    "penalties": {
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "logit_bias": {"10": 1.5},
        "bad_words": ["self", "return"],
    },
    "top-p": {"top_p": 0.9, "top_k": 100, "min_p": 0.01},
    "schema": {"structured_outputs": {"json": _SCHEMA}},
    "n": {"n": 2},
    "logprobs": {"logprobs": 3, "echo": True},
}
"""What may be mixed in, by name."""


@dataclass(frozen=True)
class Question:
    """One request whose answer must always be the same."""

    number: int
    body: dict[str, Any]


def questions(count: int, max_tokens: int, names: Sequence[str]) -> list[Question]:
    """``count`` questions: held-out prompts at every temperature, in an order of their own.

    Any beginning of the list has all temperatures and whatever is mixed in, about alike.
    """
    texts = prompts.held_out(CHARACTERS)
    pairs = itertools.islice(itertools.product(range(len(texts)), TEMPERATURES), count)
    asked = [
        Question(number, _body(texts[index], index, temperature, max_tokens) | mixed(index, names))
        for number, (index, temperature) in enumerate(pairs)
    ]
    random.Random(0).shuffle(asked)
    return asked


def mixed(index: int, names: Sequence[str]) -> dict[str, Any]:
    """What the ``index``-th prompt takes of what is mixed in: all combinations come up, the first is none."""
    chosen = [MIXED[name] for place, name in enumerate(names) if index >> place & 1]
    return {key: value for extra in chosen for key, value in extra.items()}


def _body(prompt: str, seed: int, temperature: float, max_tokens: int) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "return_tokens": True,
    }
