"""What an answer has to be: OpenAI's ``response_format`` and vLLM's ``structured_outputs``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.requests.request import Structure
from outrider.mesh.errors import InvalidRequest
from outrider.v1.sampling_pb2 import Choices, Grammar

_ANY_OBJECT = '{"type":"object"}'


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="text"):
    """``{"type": "text"}``: whatever the model says."""


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
        """The one thing that is asked for."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            why = "must hold exactly one of json, json_object, regex, choice and grammar"
            raise InvalidRequest(f"structured_outputs {why}", param="structured_outputs")
        param = f"structured_outputs.{given[0]}"
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


def structure(found: Structure | None, outputs: StructuredOutputs | None, name: str) -> Structure | None:
    """What the answer has to be, if anything, where the parameter ``name`` asks for what was ``found``.

    `InvalidRequest` where two parameters say it.
    """
    if outputs is None:
        return found
    if found is not None:
        raise InvalidRequest(
            f"structured_outputs and {name} both say what the answer has to be: give one of them",
            param="structured_outputs",
        )
    return outputs.structure()


def of_format(wanted: ResponseFormat | None) -> Structure | None:
    """What a ``response_format`` asks for."""
    if isinstance(wanted, JsonObjectFormat):
        return json_object("response_format")
    if isinstance(wanted, JsonSchemaFormat):
        return json_schema("response_format.json_schema", wanted.json_schema.schema)
    return None


def json_object(param: str) -> Structure:
    """Any JSON object, which the parameter ``param`` asks for."""
    return Structure(param, Grammar(json_schema=_ANY_OBJECT))


def json_schema(param: str, schema: dict[str, Any]) -> Structure:
    """JSON of a schema, which the parameter ``param`` has."""
    return Structure(param, Grammar(json_schema=_json(schema)))


def _json(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()
