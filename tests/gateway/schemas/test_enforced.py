"""What of clients' schemas is enforced, asked of the compiler that verifiers use."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from outrider.gateway.schemas.document import MalformedSchema
from outrider.gateway.schemas.enforced import enforced

from tests.gateway.schemas.compiling import allows, compiled
from tests.gateway.schemas.schemas import SCHEMAS, VALUES

_NO_VALUES = re.compile(
    r"Unsatisfiable|.* is a schema that no value fits|circular references|Schema intersection stack"
)
"""Refusals of random schemas that contradict themselves, or that combine themselves with themselves."""


def _matcher(schema: Any) -> tuple[LLMatcher | None, tuple[str, ...]]:
    """The matcher of what is enforced of a schema, None for one that is refused; and what is not enforced."""
    try:
        kept = enforced(schema)
        return compiled(kept.schema), kept.ignored
    except (MalformedSchema, ValueError) as error:
        refusal = str(error)
    assert _NO_VALUES.match(refusal), refusal
    return None, ()


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, st.lists(VALUES, min_size=6, max_size=6))
def test_every_value_of_a_schema_is_allowed_and_no_other_if_nothing_is_ignored(schema: Any, values: list[Any]) -> None:
    try:
        validator = jsonschema_rs.Draft202012Validator(schema)
    except (jsonschema_rs.ValidationError, ValueError):
        assume(False)
    matcher, ignored = _matcher(schema)
    assume(matcher is not None)
    assert matcher is not None
    for value in values:
        if validator.is_valid(value):
            assert allows(matcher, value), value
        elif not ignored:
            assert not allows(matcher, value), value


_OBJECT: dict[str, Any] = {"type": "object"}
_TAGGED = [{"properties": {"kind": {"const": kind}, "a": {"type": "array"}}, "required": ["kind"]} for kind in "xyz"]


@pytest.mark.parametrize(
    ("schema", "allowed", "others"),
    [
        (
            {"oneOf": [_OBJECT | each for each in _TAGGED]},
            [{"kind": "x"}, {"kind": "z", "a": []}],
            [{"kind": "w"}, {}, 1],
        ),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]} | _OBJECT, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
        ({"oneOf": [{"maximum": 2}, {"minimum": 2}], "type": "number"}, [1, 2.5], [2]),
        ({"items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 1}, [["b", "a"], ["a"], 1], [["a", "a"], []]),
        ({"items": {"type": ["boolean", "null"]}, "uniqueItems": True}, [[True, None, False]], [[None, None]]),
        ({"not": {"enum": ["a", "ab"]}, "type": "string"}, ["", "b", "abc"], ["a", "ab"]),
        ({"not": {"const": 1}, "type": "integer"}, [0, 2], [1]),
        (
            {"if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}},
            [{"a": "y"}, {"a": "x", "b": 1}],
            [{}],
        ),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, [None], [1]),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}}, [None], [1]),
        ({"properties": {"a": {"$ref": "#"}}, "additionalProperties": False}, [{"a": {"a": {}}}], [{"a": {"b": 1}}]),
        ({"propertyNames": {"pattern": "^[A-Z]+$"}} | _OBJECT, [{"A": 1}, {}], [{"a": 1}]),
        ({"propertyNames": {"enum": ["a", "b"]}} | _OBJECT, [{"a": 1}, {}], [{"c": 1}]),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 1} | _OBJECT, [{"b": 1}, {"z": 1}], [{}]),
        ({"oneOf": [{"type": "null"}, {"type": "object", "minProperties": 1}]}, [None, {"a": 1}], [{}]),
        ({"anyOf": [{"type": "boolean", "const": "auto"}, {"type": "null"}]}, [None], [True, "auto"]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {"b": 1}, 1], [{"a": 1}]),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}], "additionalItems": False},
            [[1]],
            [[1, 1]],
        ),
        ({"items": [{"const": 1}], "unevaluatedItems": False}, [[1], []], [[1, 1], [2]]),
        ({"type": "string", "pattern": r"^[\w-.]\d$"}, ["a1", "-1"], ["é1", "a٣"]),
    ],
)
def test_what_can_be_compiled_is_enforced(schema: dict[str, Any], allowed: list[Any], others: list[Any]) -> None:
    matcher, ignored = _matcher(schema)
    assert matcher is not None
    assert ignored == ()
    assert [allows(matcher, value) for value in [*allowed, *others]] == [True] * len(allowed) + [False] * len(others)


@pytest.mark.parametrize(
    ("schema", "ignored"),
    [
        ({"properties": {"a/b": {"uniqueItems": True}}}, ["/properties/a~1b/uniqueItems"]),
        ({"contains": {"type": "null"}}, ["/contains"]),
        ({"type": "string", "pattern": r"^(?!\.)[a-z.]+$"}, ["/pattern"]),
        ({"not": {"pattern": "a"}}, ["/not"]),
        ({"const": 2**60}, ["/const"]),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, ["/exclusiveMinimum"]),
        ({"type": "number", "multipleOf": 0.235}, ["/multipleOf"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$dynamicRef": "#b"}}}}, ["/$defs/a/items/$dynamicRef"]),
        ({"required": True}, ["/required"]),
        ({"items": {"$ref": "http://json-schema.org/draft-07/schema#"}}, ["/items/$ref"]),
    ],
)
def test_what_cannot_be_is_named(schema: dict[str, Any], ignored: list[str]) -> None:
    matcher, names = _matcher(schema)
    assert matcher is not None
    assert names == tuple(ignored)


@pytest.mark.parametrize(
    "nothing",
    [
        {"format": "path"},
        {"format": "int64", "type": "integer"},
        {"uniqueItems": False},
        {"if": {"maxLength": 3}},
        {"then": False},
        {"dependentRequired": {}},
        {"propertyNames": True},
        {"minContains": 2},
        {"title": 3, "x-order": {"a": []}},
        {"$defs": {"a": {"type": 5}}},
    ],
)
def test_what_says_nothing_is_nothing(nothing: dict[str, Any]) -> None:
    assert enforced({"minimum": 1.0, **nothing}).ignored == ()


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": 5}}}, "/properties/a/type"),
        ({"properties": []}, "/properties"),
        ({"items": {"$ref": "#/nowhere"}}, "/items/$ref"),
        ({"$id": "https://example.com/a", "$ref": "a#/nowhere"}, "/$ref"),
        ({"anyOf": []}, "/anyOf"),
        ({"allOf": [{}, {"minLength": -1}]}, "/allOf/1/minLength"),
        ({"pattern": "("}, "/pattern"),
        ({"not": {}}, ""),
    ],
)
def test_a_malformed_schema_is_refused_with_its_place(schema: dict[str, Any], pointer: str) -> None:
    with pytest.raises(MalformedSchema) as refused:
        enforced(schema)
    assert refused.value.pointer == pointer


def test_alternatives_are_bounded() -> None:
    dependent = {chr(97 + place): [chr(98 + place)] for place in range(20)}
    assert len(enforced({"dependentRequired": dependent}).ignored) == 14
