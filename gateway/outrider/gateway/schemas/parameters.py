"""The parameters of a function, one by one: for formats of calls that do not write arguments as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

ANY = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
"""JSON Schema's types; where a number may be, an integer may be, too."""
_DEEPEST = 32

ParameterTypes = dict[str, tuple[str, ...]]
"""Types by the name of a parameter; those of parameters that the schema does not name have the name ""."""


class Parameters(msgspec.Struct, frozen=True):
    """Schemas of the parameters by name, in their order, and the ``required`` names among them.

    ``more`` is the schema of parameters without a name here; False if there may be none. ``definitions`` are those to
    which references in the schemas lead.
    """

    schemas: dict[str, Any]
    required: frozenset[str]
    more: Any
    definitions: dict[str, Any]

    @classmethod
    def of(cls, schema: str) -> Parameters:
        """The parameters in the ``schema`` of an object, as `enforced` returns it."""
        root = msgspec.json.decode(schema)
        definitions = root.get("$defs", {})
        schemas: dict[str, Any] = {}
        required: set[str] = set()
        more: Any = True
        for part, always in _parts(root, definitions):
            for name, inner in part.get("properties", {}).items():
                if inner is not False:
                    schemas[name] = {"anyOf": [schemas[name], inner]} if name in schemas else inner
            if always:
                required |= set(part.get("required", ()))
                others = part.get("additionalProperties", True)
                more = others if more is True or others is False else more
        return cls(schemas, frozenset(required & schemas.keys()), more, definitions)

    def types(self) -> ParameterTypes:
        """The types of each parameter."""
        named = self.schemas if self.more is False else self.schemas | {"": self.more}
        return {name: tuple(sorted(self.types_of(inner))) for name, inner in named.items()}

    def types_of(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """The types that values of ``schema`` may have."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return ANY
        allowed = ANY
        if "type" in schema:
            stated = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
            allowed &= stated | ({"integer"} if "number" in stated else set())
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is not None:
            allowed &= {kind for value in values for kind in kinds(value)}
        if "$ref" in schema:
            allowed &= self.types_of(_target(schema, self.definitions), depth + 1)
        if "anyOf" in schema:
            allowed &= {kind for inner in schema["anyOf"] for kind in self.types_of(inner, depth + 1)}
        for inner in schema.get("allOf", ()):
            allowed &= self.types_of(inner, depth + 1)
        return allowed

    def resolved(self, schema: Any) -> Any:
        """``schema``, or what it refers to."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict) or schema.keys() != {"$ref"}:
                break
            schema = _target(schema, self.definitions)
        return schema


def kinds(value: Any) -> tuple[str, ...]:
    """The types that ``value`` has."""
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return ("integer", "number")
        case float():
            return ("integer", "number") if value.is_integer() else ("number",)
        case str():
            return ("string",)
    return ("object",) if isinstance(value, dict) else ("array",)


def _target(schema: dict[str, Any], definitions: dict[str, Any]) -> Any:
    return definitions.get(schema["$ref"].rpartition("/")[2], True)


def _parts(schema: Any, definitions: dict[str, Any], always: bool = True, depth: int = 0) -> Iterator[tuple[Any, bool]]:
    """The schemas that together say what an object may hold, each with whether it ``always`` applies."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    yield schema, always
    if "$ref" in schema:
        yield from _parts(_target(schema, definitions), definitions, always, depth + 1)
    for keyword in ("allOf", "anyOf"):
        for inner in schema.get(keyword, ()):
            yield from _parts(inner, definitions, always and keyword == "allOf", depth + 1)
