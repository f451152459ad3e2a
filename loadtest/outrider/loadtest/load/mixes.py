"""Requests whose answers are compared: prompts, temperatures, and parameters that change draws."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.measure.load import prompts

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
"""Parameters that may be mixed in, by name."""


@dataclass(frozen=True)
class ComparedRequest:
    """One request; its answer must always be the same."""

    number: int
    body: dict[str, Any]


def compared_requests(count: int, max_tokens: int, names: Sequence[str]) -> list[ComparedRequest]:
    """``count`` questions: held-out prompts at every temperature, shuffled by a fixed seed.

    Any beginning of the list has about equally many of each temperature and each mixed-in parameter.
    """
    texts = prompts.held_out(CHARACTERS)
    pairs = itertools.islice(itertools.product(range(len(texts)), TEMPERATURES), count)
    shuffled = [
        ComparedRequest(number, _body(texts[index], index, temperature, max_tokens) | mixed(index, names))
        for number, (index, temperature) in enumerate(pairs)
    ]
    random.Random(0).shuffle(shuffled)
    return shuffled


def mixed(index: int, names: Sequence[str]) -> dict[str, Any]:
    """Parameters of the ``index``-th prompt: its bits choose among ``names``, so all combinations occur."""
    chosen_parameters = [MIXED[name] for place, name in enumerate(names) if index >> place & 1]
    return {key: value for extra in chosen_parameters for key, value in extra.items()}


def _body(prompt: str, seed: int, temperature: float, max_tokens: int) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "return_tokens": True,
    }
