"""The keywords that say something of a value, and the form of what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.gateway.schemas.document import MalformedSchema, Place
from outrider.gateway.schemas.values import TYPES, type_of

FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"})
"""The formats of strings that are enforced; others are annotations."""
IN_PLACE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies"}
)
"""Keywords with schemas for the same value."""
NAMING = frozenset({"properties", "patternProperties", "propertyNames", "dependentRequired"})
"""Keywords that name properties."""

_Form = tuple[Callable[[Any], bool], str]


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _name_types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _are(str, names) and {*names} <= {*TYPES, "integer"}


def _is_number(value: Any) -> bool:
    return type_of(value) == "number"


def _maps(value: Any, *kinds: type) -> bool:
    return isinstance(value, dict) and all(isinstance(each, kinds) for each in value.values())


_FORMS: dict[str, _Form] = {
    "type": (_name_types, f"one or several of {', '.join(TYPES)} and integer"),
    "const": (lambda _: True, ""),
    "enum": (lambda value: isinstance(value, list), "an array"),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "required": (lambda value: isinstance(value, bool) or _are(str, value), "an array of strings"),
    "items": (lambda value: isinstance(value, dict | bool | list), "a schema"),
    "prefixItems": (lambda value: isinstance(value, list), "an array of schemas"),
} | {
    keyword: form
    for keywords, form in (
        ("$ref $dynamicRef $recursiveRef format pattern", (lambda value: isinstance(value, str), "a string")),
        ("minimum maximum", (_is_number, "a number")),
        ("exclusiveMinimum exclusiveMaximum", (lambda value: type_of(value) in ("number", "boolean"), "a number")),
        (
            "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
            (lambda value: _is_number(value) and value >= 0 and value == int(value), "a whole number of at least 0"),
        ),
        ("allOf anyOf oneOf", (lambda value: isinstance(value, list) and value != [], "an array of schemas")),
        (
            "properties patternProperties dependentSchemas",
            (lambda value: _maps(value, dict, bool), "an object of schemas"),
        ),
        (
            "dependentRequired dependencies",
            (lambda value: _maps(value, dict, bool, list), "an object of arrays of strings, or of schemas"),
        ),
        (
            "not if then else contains propertyNames additionalItems additionalProperties unevaluatedItems "
            "unevaluatedProperties",
            (lambda value: isinstance(value, dict | bool), "a schema: an object, true or false"),
        ),
    )
    for keyword in keywords.split()
}
_PARTNERS = {
    "then": {"if"},
    "else": {"if"},
    "if": {"then", "else"},
    "minContains": {"contains"},
    "maxContains": {"contains"},
}
"""Keywords that say nothing unless one of their partners is there."""
_SPEAK_OF_ALL = {"const", "enum", "type", "not", "contains"}
"""Keywords that say something whatever they hold."""


def said(place: Place) -> dict[str, Any]:
    """The keywords at ``place`` that say something of a value; raises `MalformedSchema`."""
    schema = place.schema
    if not isinstance(schema, dict):
        raise MalformedSchema(place.pointer, "must be a schema: an object, true or false")
    says = {}
    for keyword, value in schema.items():
        holds, form = _FORMS.get(keyword, _FORMS["const"])
        if not holds(value):
            raise MalformedSchema(place.below(keyword), f"must be {form}")
        if keyword in _FORMS and not _idle(keyword, value, schema):
            says[keyword] = value
    return says


def _idle(keyword: str, value: Any, schema: dict[str, Any]) -> bool:
    if keyword in _PARTNERS:
        return not _PARTNERS[keyword] & schema.keys()
    match keyword:
        case "format":
            return value not in FORMATS
        case "uniqueItems" | "exclusiveMinimum" | "exclusiveMaximum":
            return value is False
        case "allOf" | "anyOf":
            return (all if keyword == "allOf" else any)(each in (True, {}) for each in value)
        case "unevaluatedProperties" if "additionalProperties" in schema:
            return True
        case "additionalItems" if not isinstance(schema.get("items"), list):
            return True
    return keyword not in _SPEAK_OF_ALL and (value in ({}, []) or (value is True and keyword not in _FLAGS))


_FLAGS = {"required", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum"}
