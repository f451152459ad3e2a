"""JSON values as JSON Schema compares them, and the numbers that the compiler takes as they are."""

from __future__ import annotations

import json
from typing import Any

TYPES = ("null", "boolean", "number", "string", "array", "object")
"""The types of values; ``integer`` is a part of ``number``."""
LARGEST = 2**53
"""The largest number that the compiler takes as it is."""
_SMALLEST = 1e-6
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def type_of(value: Any) -> str:
    """The type of a JSON value, one of `TYPES`."""
    return _TYPES.get(type(value), "null")


def plain(value: Any) -> Any:
    """``value`` with whole numbers as integers: 1.0 is 1, and -0.0 is 0."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def key(value: Any) -> str:
    """A text that equal values share, and no others."""
    return json.dumps(plain(value), sort_keys=True)


def exact(value: Any) -> bool:
    """Whether the compiler, which computes with doubles, takes the numbers in ``value`` as they are."""
    if isinstance(value, list | dict):
        return all(map(exact, value.values() if isinstance(value, dict) else value))
    return type_of(value) != "number" or value == 0 or _SMALLEST <= abs(value) <= LARGEST
