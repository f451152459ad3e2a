"""Compiles schemas as a verifier does, and asks what they allow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, permutations, product
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from outrider.engine.logits.grammar_definitions import definition, make_matcher

_BYTES = LLTokenizer("byte")


def compiled(schema: str) -> LLMatcher:
    """The matcher of a schema; `ValueError` if the compiler refuses the schema."""
    return make_matcher(_BYTES, definition("json_schema", schema))


def allows(matcher: LLMatcher, value: Any) -> bool:
    """Whether a matcher allows ``value`` with its properties in any order."""
    return any(_takes(matcher, each) for each in islice(_orders(value), 200))


def _takes(matcher: LLMatcher, value: Any) -> bool:
    copy, tokens = matcher.deep_copy(), _BYTES.tokenize_str(json.dumps(value, ensure_ascii=False))
    return copy.try_consume_tokens(tokens) == len(tokens) and copy.is_accepting()


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for names in permutations(value):
            for values in product(*(list(_orders(value[name])) for name in names)):
                yield dict(zip(names, values, strict=True))
    elif isinstance(value, list):
        yield from map(list, product(*map(_orders, value)))
    else:
        yield value
