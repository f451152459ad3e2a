"""The keywords that say something of a value, and the form of what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.gateway.schemas.document import MalformedSchema, Place
from outrider.gateway.schemas.values import TYPES, type_of

FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"})
"""Formats of texts that are enforced; others are annotations."""
IN_PLACE = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies"})
"""Keywords whose schemas hold for the same value."""

_Form = tuple[Callable[[Any], bool], str]


def _names_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return all(name in (*TYPES, "integer") for name in names if isinstance(name, str) or name is None) and all(
        isinstance(name, str) for name in names
    )


_TEXT: _Form = (lambda value: isinstance(value, str), "a string")
_NUMBER: _Form = (lambda value: type_of(value) == "number", "a number")
_LIMIT: _Form = (lambda value: type_of(value) in ("number", "boolean"), "a number")  # a boolean in draft 4
_COUNT: _Form = (
    lambda value: type_of(value) == "number" and value >= 0 and value == int(value),
    "a whole number of at least 0",
)
_MANY: _Form = (lambda value: isinstance(value, list) and bool(value), "an array of at least one schema")
_MAP: _Form = (lambda value: isinstance(value, dict), "an object of schemas")
_NAMES: _Form = (
    lambda value: isinstance(value, bool) or isinstance(value, list) and all(isinstance(name, str) for name in value),
    "an array of strings",
)
_SCHEMA: _Form = (lambda value: isinstance(value, dict | bool), "a schema: an object, true or false")
_DEPENDENT: _Form = (
    lambda value: isinstance(value, dict) and all(isinstance(each, list | dict | bool) for each in value.values()),
    "an object of schemas or arrays of names",
)

_FORMS: dict[str, _Form] = {
    "type": (_names_types, f"one or several of {', '.join(TYPES)}, integer"),
    "const": (lambda _: True, ""),
    "enum": (lambda value: isinstance(value, list), "an array"),
    "$ref": _TEXT,
    "$dynamicRef": _TEXT,
    "$recursiveRef": _TEXT,
    "format": _TEXT,
    "pattern": _TEXT,
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _LIMIT,
    "exclusiveMaximum": _LIMIT,
    "multipleOf": (lambda value: type_of(value) == "number" and value > 0, "a number above 0"),
    "prefixItems": (lambda value: isinstance(value, list), "an array of schemas"),
    "items": (lambda value: isinstance(value, dict | bool | list), "a schema"),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "required": _NAMES,
    "dependentRequired": _DEPENDENT,
    "dependencies": _DEPENDENT,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _MANY),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _MAP),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT
    ),
    **dict.fromkeys(("minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "additionalItems"), _SCHEMA),
    **dict.fromkeys(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"), _SCHEMA),
}


def said(place: Place) -> dict[str, Any]:
    """The keywords of ``place`` that say something of a value; raises `MalformedSchema`.

    A keyword that allows everything says nothing, nor does one without its partner, such as ``then`` without ``if``.
    """
    schema = place.schema
    if not isinstance(schema, dict):
        raise MalformedSchema(place.pointer, "must be a schema: an object, true or false")
    for keyword, value in schema.items():
        holds, form = _FORMS.get(keyword, _FORMS["const"])
        if not holds(value):
            raise MalformedSchema(f"{place.pointer}/{keyword}", f"must be {form}")
    return {keyword: value for keyword, value in schema.items() if keyword in _FORMS and not _idle(keyword, value, schema)}


def _idle(keyword: str, value: Any, schema: dict[str, Any]) -> bool:
    match keyword:
        case "format":
            return value not in FORMATS
        case "uniqueItems" | "exclusiveMinimum" | "exclusiveMaximum":
            return value is False
        case "then" | "else":
            return "if" not in schema or value in (True, {})
        case "if":
            return not {"then", "else"} & schema.keys()
        case "minContains" | "maxContains":
            return "contains" not in schema
        case "additionalItems":
            return value in (True, {}) or not isinstance(schema.get("items"), list)
        case "minLength" | "minItems" | "minProperties":
            return value == 0
        case "const" | "enum" | "not" | "contains" | "type":
            return False
        case "unevaluatedProperties":
            return value in (True, {}) or "additionalProperties" in schema
        case "allOf":
            return all(each in (True, {}) for each in value)
        case "anyOf":
            return any(each in (True, {}) for each in value)
    return value in ({}, []) or value is True and keyword != "required"
