"""The structure of answers: OpenAI's ``response_format`` and vLLM's ``structured_outputs``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.requests.request import Structure
from outrider.mesh.errors import InvalidRequest
from outrider.v1.sampling_pb2 import Choices, Grammar

_ANY_OBJECT = '{"type":"object"}'


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="text"):
    """``{"type": "text"}``: any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="json_object"):
    """``{"type": "json_object"}``: any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``json_schema`` of a response format. The schema is always enforced, ``strict`` or not."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="json_schema"):
    """``{"type": "json_schema", "json_schema": {...}}``."""

    json_schema: NamedSchema


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``structured_outputs``: exactly one of its fields."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: str | None = None

    def structure(self) -> Structure:
        """The structure that the field asks for; raises `InvalidRequest` unless exactly one field is set."""
        fields = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, False)]
        if len(fields) != 1:
            why = "must hold exactly one of json, json_object, regex, choice and grammar"
            raise InvalidRequest(f"structured_outputs {why}", param="structured_outputs")
        param = f"structured_outputs.{fields[0]}"
        if self.choice is not None:
            return Structure(param, Grammar(choice=Choices(texts=self.choice)))
        schema = _ANY_OBJECT if self.json_object else self.json
        schema = _json(schema) if isinstance(schema, dict) else schema
        return Structure(param, Grammar(regex=self.regex, context_free=self.grammar, json_schema=schema))


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat,
    Meta(
        description='{"type": "text"}, {"type": "json_object"} or '
        '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}'
    ),
]


def merged_structure(structure: Structure | None, outputs: StructuredOutputs | None, name: str) -> Structure | None:
    """The structure of ``outputs``, or else ``structure``, which the parameter ``name`` asks for.

    Raises `InvalidRequest` if both are given.
    """
    if outputs is None:
        return structure
    if structure is not None:
        raise InvalidRequest(
            f"structured_outputs and {name} both say what the answer has to be: give one of them",
            param="structured_outputs",
        )
    return outputs.structure()


def format_structure(response_format: ResponseFormat | None) -> Structure | None:
    """The structure that ``response_format`` asks for; None for any text."""
    if isinstance(response_format, JsonObjectFormat):
        return json_object("response_format")
    if isinstance(response_format, JsonSchemaFormat):
        return json_schema("response_format.json_schema", response_format.json_schema.schema)
    return None


def json_object(param: str) -> Structure:
    """The structure of any JSON object; ``param`` is the client's parameter."""
    return Structure(param, Grammar(json_schema=_ANY_OBJECT))


def json_schema(param: str, schema: dict[str, Any]) -> Structure:
    """The structure of JSON that fits ``schema``; ``param`` is the client's parameter."""
    return Structure(param, Grammar(json_schema=_json(schema)))


def _json(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()
