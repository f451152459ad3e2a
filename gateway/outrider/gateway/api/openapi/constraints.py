"""JSON Schemas of constraints on bodies that their types do not express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.gateway.api.openai.bodies import MOST_CHOICES
from outrider.wire.bounds import INT32
from outrider.wire.prompts import NAME
from outrider.wire.sampling import MOST_BIAS, MOST_BIASES

Schema = dict[str, Any]

TRUE: Schema = {"const": True}
SOME: Schema = {"type": "array", "minItems": 1}
_TEXT: Schema = {"type": "string"}
_PART = {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": _TEXT}}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": INT32}}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": _TEXT, "content": {"anyOf": [_TEXT, {"type": "array", "items": _PART}, {"type": "null"}]}},
}

_SEVERAL = SOME | {"maxItems": MOST_CHOICES}
PROMPT: Schema = {"anyOf": [_TEXT, SOME | _IDS, _SEVERAL | {"items": _TEXT}, _SEVERAL | {"items": SOME | _IDS}]}
MESSAGES: Schema = SOME | {"items": _MESSAGE}
TURNS: Schema = SOME | {
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["user", "assistant", "system"]},
            "content": {"anyOf": [_TEXT, {"type": "array", "items": {"type": "object", "required": ["type"]}}]},
        },
    }
}
TOOLS: Schema = {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {"type": _TEXT}}}
"""Of any type: those that are no functions have no effect."""
_BIAS: Schema = {"type": "number", "minimum": -MOST_BIAS, "maximum": MOST_BIAS}
_BIASES: Schema = {
    "type": "object",
    "maxProperties": MOST_BIASES,
    "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
    "additionalProperties": _BIAS,
}
_BIASED = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": INT32}, _TEXT | {"minLength": 1, "maxLength": 1000}]}
_PAIR: Schema = {
    "type": "array",
    "prefixItems": [_BIASED, {"anyOf": [_BIAS, {"const": False}]}],
    "minItems": 2,
    "maxItems": 2,
}
LOGIT_BIAS: Schema = {"anyOf": [_BIASES, {"type": "array", "maxItems": MOST_BIASES, "items": _PAIR}]}
_NAME: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
PATHS: Mapping[tuple[str, str], Schema] = {
    ("/v1/prompts/{name}", "name"): _NAME,
    ("/admin/v1/tenants/{name}", "name"): _NAME,
    ("/admin/v1/keys/{id}", "id"): _ID,
    ("/admin/v1/keys/{id}/rotate", "id"): _ID,
    ("/admin/v1/keys/{id}/revoke", "id"): _ID,
}
"""Schemas of path parameters that may not be any text, by path and name."""


def present(name: str) -> Schema:
    """An object that holds ``name``, not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> Schema:
    """An object that holds exactly one of ``names``."""
    return {"oneOf": [present(name) for name in names]}


def only_with(name: str, nothing: Any, other: str, schema: Schema) -> Schema:
    """An object that holds ``name``, other than null and ``nothing``, only if ``other`` fits ``schema``."""
    set_ = {"required": [name], "properties": {name: {"not": {"enum": [None, nothing]}}}}
    return {"anyOf": [{"not": set_}, {"required": [other], "properties": {other: schema}}]}


COMPONENTS: Mapping[str, Schema] = {
    "StructuredOutputs": {
        "oneOf": [
            *map(present, ("json", "regex", "choice", "grammar")),
            {"required": ["json_object"], "properties": {"json_object": TRUE}},
        ]
    },
}
"""Further schemas of components, by name."""
