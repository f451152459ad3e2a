"""Random schemas and values, small enough that many values fit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "ab"])
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from([0.5, 1.5]),
    st.sampled_from(["", "a", "b", "ab", "1"]),
)
VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=4
)
_TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_PATTERNS = st.sampled_from(["^a", "b$", "^a|1$", "^(?!a)", "^[^ab]+$", r"^\d", "^.b?$"])
_COUNTS = st.integers(0, 2)
_LEAVES: list[tuple[str, Any]] = [
    ("type", _TYPES | st.lists(_TYPES, min_size=1, max_size=3, unique=True)),
    ("const", VALUES),
    ("enum", st.lists(VALUES, min_size=1, max_size=3)),
    ("minimum", st.integers(-1, 2)),
    ("exclusiveMinimum", st.integers(-1, 2)),
    ("maximum", st.integers(-1, 2)),
    ("exclusiveMaximum", st.integers(-1, 2)),
    ("multipleOf", st.sampled_from([2, 0.5, 1.5])),
    ("minLength", _COUNTS),
    ("maxLength", _COUNTS),
    ("pattern", _PATTERNS),
    ("minItems", _COUNTS),
    ("maxItems", _COUNTS),
    ("uniqueItems", st.booleans()),
    ("minProperties", _COUNTS),
    ("maxProperties", _COUNTS),
    ("required", st.lists(NAMES, max_size=2, unique=True)),
    ("dependentRequired", st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2)),
]
_REFERENCES = st.sampled_from([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}])


def _inner(schema: st.SearchStrategy[Any]) -> list[tuple[str, Any]]:
    named, listed = st.dictionaries(NAMES, schema, max_size=3), st.lists(schema, min_size=1, max_size=3)
    return [
        *((name, schema) for name in ("not", "items", "contains", "propertyNames", "additionalProperties")),
        *((name, schema) for name in ("unevaluatedProperties", "unevaluatedItems", "if", "then", "else")),
        *((name, listed) for name in ("allOf", "anyOf", "oneOf", "prefixItems")),
        *((name, named) for name in ("properties", "properties", "dependentSchemas")),
        ("patternProperties", st.dictionaries(_PATTERNS, schema, max_size=2)),
    ]


def _some(choices: list[tuple[str, Any]]) -> st.SearchStrategy[Any]:
    picked = st.lists(st.sampled_from(choices), max_size=4, unique_by=lambda choice: choice[0])
    return picked.flatmap(lambda chosen: st.fixed_dictionaries(dict(chosen)))


_LEAF = st.booleans() | _some(_LEAVES)
_DEFINITIONS = st.recursive(_LEAF, lambda inner: _some([*_LEAVES, *_inner(inner)]), max_leaves=4)
_BEHIND = st.builds(
    lambda schema, name, reference: {**schema, "properties": {name: reference}},
    _some(_LEAVES),
    NAMES,
    _REFERENCES,
)
"""Definitions that refer to others, or to themselves, for the values of a property."""
_SCHEMAS = st.recursive(
    _LEAF | _REFERENCES,
    lambda inner: _some(
        [*_LEAVES, ("$ref", _REFERENCES.map(lambda each: each["$ref"])), *_inner(inner), *_inner(inner)]
    ),
    max_leaves=8,
)
SCHEMAS = st.builds(
    lambda schema, a, b: {**schema, "$defs": {"a": a, "b": b}},
    _SCHEMAS.filter(lambda each: isinstance(each, dict)),
    _DEFINITIONS | _BEHIND,
    _DEFINITIONS | _BEHIND,
)
