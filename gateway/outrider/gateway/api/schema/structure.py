"""The structure of answers: OpenAI's ``response_format`` and vLLM's ``structured_outputs``."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from outrider.gateway.api.http.messages import read_plain
from outrider.gateway.api.schema.json_schemas import enforce, require_small
from outrider.gateway.request.generation import Structure
from outrider.gateway.schemas.enforced import Enforced, enforced
from outrider.mesh.errors import InvalidRequest
from outrider.v1.sampling_pb2 import Choices, Grammar

_ANY_OBJECT = '{"type":"object"}'


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="text"):
    """``{"type": "text"}``: any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="json_object"):
    """``{"type": "json_object"}``: any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """``json_schema`` of a response format.

    The schema is enforced, ``strict`` or not; with ``strict`` it is refused unless all of it can be.
    """

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None

    def structure(self, param: str) -> Structure:
        """The structure of JSON that fits the schema, which is at ``param``; raises `InvalidRequest`."""
        require_small([self.schema], param)
        text, unenforced = enforce(lambda: self._kept, param, self.strict)
        return Structure(param, Grammar(json_schema=text), unenforced)

    @cached_property
    def _kept(self) -> Enforced:
        return enforced(self.schema)


class JsonSchemaFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="json_schema"):
    """``{"type": "json_schema", "json_schema": {...}}``."""

    json_schema: NamedSchema


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
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
        if self.json is not None:
            require_small([self.json], param)
            text, unenforced = enforce(lambda: self._kept, param, strict=False)
            return Structure(param, Grammar(json_schema=text), unenforced)
        schema = _ANY_OBJECT if self.json_object else None
        return Structure(param, Grammar(regex=self.regex, context_free=self.grammar, json_schema=schema))

    @cached_property
    def _kept(self) -> Enforced:
        name = "structured_outputs.json"
        return enforced(read_plain(self.json, name) if isinstance(self.json, str) else self.json)


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
        return response_format.json_schema.structure("response_format.json_schema.schema")
    return None


def json_object(param: str) -> Structure:
    """The structure of any JSON object; ``param`` is the client's parameter."""
    return Structure(param, Grammar(json_schema=_ANY_OBJECT))
