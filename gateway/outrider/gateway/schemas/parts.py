"""Combinations of schemas, and how many alternatives they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any


def all_of(schemas: Iterable[Any]) -> Any:
    """The schema of values that fit all of ``schemas``."""
    parts = [each for each in schemas if each not in (True, {})]
    if False in parts:
        return False
    return {"allOf": parts} if len(parts) > 1 else (parts or [True])[0]


def any_of(schemas: Iterable[Any]) -> Any:
    """The schema of values that fit at least one of ``schemas``."""
    parts = [each for each in schemas if each is not False]
    if any(each in (True, {}) for each in parts):
        return True
    return {"anyOf": parts} if len(parts) > 1 else (parts or [False])[0]


def alternatives(schema: Any) -> int:
    """The alternatives of one value of ``schema`` after the compiler has multiplied those that hold together."""
    if not isinstance(schema, dict):
        return 1
    own = sum(map(alternatives, schema["anyOf"])) if "anyOf" in schema else 1
    return own * prod(map(alternatives, schema.get("allOf", ())))


def references(schema: Any) -> Iterator[str]:
    """The references in ``schema`` for the same value."""
    if isinstance(schema, dict):
        yield from [schema["$ref"]] if "$ref" in schema else []
        for each in [*schema.get("allOf", ()), *schema.get("anyOf", ())]:
            yield from references(each)
