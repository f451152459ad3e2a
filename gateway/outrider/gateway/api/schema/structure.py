"""The structure of answers: ``response_format``, ``structured_outputs``, and other names of its kinds."""

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
    """``{"type": "json_object"}``: any JSON object, or with llama-server's ``schema`` JSON that fits it."""

    schema: dict[str, Any] | None = None

    def structure(self, param: str) -> Structure:
        """The structure of such an object; the format is at ``param``. Raises `InvalidRequest`."""
        if self.schema is not None:
            return json_schema(f"{param}.schema", self.schema)
        return Structure(param, Grammar(json_schema=_ANY_OBJECT))


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


JsonSchema = Annotated[dict[str, Any] | str, Meta(description="a JSON Schema, or its text")]
GrammarText = Annotated[str, Meta(min_length=1, description="a grammar, in GBNF or in Lark")]
Texts = Annotated[list[str], Meta(min_length=1, description="an array of at least one string")]


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``structured_outputs``: exactly one of its fields."""

    json: JsonSchema | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Texts | None = None
    grammar: str | None = None

    def structure(self, param: str = "") -> Structure:
        """The structure that the field asks for; raises `InvalidRequest` unless exactly one field is set.

        ``param`` is the field's own name in the request, if it has one.
        """
        fields = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, False)]
        if len(fields) != 1:
            why = "must hold exactly one of json, json_object, regex, choice and grammar"
            raise InvalidRequest(f"structured_outputs {why}", param="structured_outputs")
        param = param or f"structured_outputs.{fields[0]}"
        if self.choice is not None:
            return Structure(param, Grammar(choice=Choices(texts=self.choice)))
        if self.json is not None:
            return json_schema(param, read_plain(self.json, param) if isinstance(self.json, str) else self.json)
        schema = _ANY_OBJECT if self.json_object else None
        return Structure(param, Grammar(regex=self.regex, context_free=self.grammar, json_schema=schema))


NAMED = {
    "grammar": "grammar",
    "json_schema": "json",
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""Fields of `StructuredOutputs` by their names in llama-server, and in vLLM before its ``structured_outputs``."""
STRUCTURES = ("response_format", "structured_outputs", *NAMED)
"""Parameters that say what an answer has to be."""


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat,
    Meta(
        description='{"type": "text"}, {"type": "json_object"} or '
        '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}'
    ),
]


def merged_structure(structure: Structure | None, name: str, body: msgspec.Struct) -> Structure | None:
    """``structure``, which the parameter ``name`` asks for, or else what another parameter of ``body`` asks for.

    Raises `InvalidRequest` if several parameters do.
    """
    asked = {} if structure is None else {name: structure}
    for other, kind in {"structured_outputs": "", **NAMED}.items():
        if (value := getattr(body, other, None)) is not None:
            asked[other] = StructuredOutputs(**{kind: value}).structure(other) if kind else value.structure()
    if len(asked) > 1:
        first, second = [*asked][:2]
        raise InvalidRequest(f"{second} and {first} both say what the answer has to be: give one of them", param=second)
    return next(iter(asked.values()), None)


def format_structure(response_format: ResponseFormat | None) -> Structure | None:
    """The structure that ``response_format`` asks for; None for any text."""
    if isinstance(response_format, JsonObjectFormat):
        return response_format.structure("response_format")
    if isinstance(response_format, JsonSchemaFormat):
        return response_format.json_schema.structure("response_format.json_schema.schema")
    return None


def json_schema(param: str, schema: Any) -> Structure:
    """The structure of JSON that fits the ``schema`` at ``param``; raises `InvalidRequest`."""
    require_small([schema], param)
    text, unenforced = enforce(lambda: enforced(schema), param, strict=False)
    return Structure(param, Grammar(json_schema=text), unenforced)
