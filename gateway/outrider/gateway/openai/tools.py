"""Calls of functions: ``tools`` and ``tool_choice``, and what becomes of an answer that is a call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.request import Structure
from outrider.mesh.errors import InvalidRequest

_MOST_CALLS = 8


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that may be called; its ``parameters`` are a JSON Schema, always enforced."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """Schema of its arguments; no parameters are an empty object."""
        return {"type": "object", "additionalProperties": False} if self.parameters is None else self.parameters


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``tools``."""

    type: Literal["function"]
    function: Function


class FunctionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a function."""

    name: str


class NamedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tool_choice`` that names a function."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool,
    Meta(description='"none", "required", or {"type": "function", "function": {"name": ...}}'),
]


class CalledFunction(msgspec.Struct):
    """What is called, with arguments as JSON."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToolCall(msgspec.Struct):
    """One call, whole or what a chunk adds to it. Only chunks have an ``index``."""

    function: CalledFunction
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET


class Calling(msgspec.Struct, frozen=True):
    """An answer that has to be calls: of ``named``, or of any of the functions where that is None."""

    structure: Structure
    named: str | None = None

    def calls(self, text: str, answer: str) -> list[ToolCall] | None:
        """The calls in an answer; None where it was cut short of being any. ``answer`` makes their ids."""
        try:
            said = (
                [(self.named, text)]
                if self.named
                else [(call.name, bytes(call.arguments).decode()) for call in _said(text)]
            )
            msgspec.json.decode(said[-1][1])
        except (msgspec.DecodeError, IndexError):
            return None
        return [call(answer, place, name, arguments) for place, (name, arguments) in enumerate(said)]


class _Said(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


_said = msgspec.json.Decoder(list[_Said]).decode


def call(answer: str, place: int, name: str, arguments: str) -> ToolCall:
    """A whole call, the ``place``-th of an answer."""
    return ToolCall(CalledFunction(arguments, name), f"call_{answer}_{place}", "function")


def calling(
    tools: list[Tool], choice: ToolChoice | None, parallel: bool, where: str = "function.parameters"
) -> Calling | None:
    """What has to be called, if anything; `InvalidRequest` for a choice that cannot be honoured.

    ``where`` is the place of a function's parameters in a tool, as the client writes it.
    """
    if not tools:
        if choice in (None, "none", "auto"):
            return None
        raise InvalidRequest("tool_choice may only be given with tools", param="tool_choice")
    if choice == "none":
        return None
    if choice in (None, "auto"):
        raise InvalidRequest(
            "tool_choice auto is not supported: no served model has a format for calls of its own; set it to required, "
            "to a function, or to none",
            param="tool_choice",
        )
    if isinstance(choice, NamedTool):
        return _one(tools, choice.function.name, where)
    return Calling(Structure("json_schema", "tools", msgspec.json.encode(_schema(tools, parallel, where)).decode()))


def _one(tools: list[Tool], name: str, where: str) -> Calling:
    for place, tool in enumerate(tools):
        if tool.function.name == name:
            param = f"tools[{place}].{where}"
            return Calling(Structure("json_schema", param, msgspec.json.encode(tool.function.schema).decode()), name)
    there = ", ".join(tool.function.name for tool in tools)
    raise InvalidRequest(f"tool_choice names {name}; there are: {there}", param="tool_choice")


def _schema(tools: list[Tool], parallel: bool, where: str) -> dict[str, Any]:
    """A list of calls. Definitions move to the top, where references look for them."""
    definitions: dict[str, Any] = {}
    kinds = []
    for place, tool in enumerate(tools):
        schema = dict(tool.function.schema)
        for name, definition in schema.pop("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                param = f"tools[{place}].{where}"
                raise InvalidRequest(f"{param}: $defs.{name} is another than in a tool before it", param=param)
        called = {"name": {"const": tool.function.name}, "arguments": schema}
        kinds.append(
            {"type": "object", "properties": called, "required": ["name", "arguments"], "additionalProperties": False}
        )
    most = _MOST_CALLS if parallel else 1
    return {"type": "array", "items": {"anyOf": kinds}, "minItems": 1, "maxItems": most, "$defs": definitions}


def shown(tools: list[Tool]) -> str:
    """Tools as a template expects them, as a JSON array without what the client did not say; "" for none."""
    return msgspec.json.encode([_said_of(tool) for tool in tools]).decode() if tools else ""


def _said_of(tool: Tool) -> dict[str, Any]:
    said = {key: value for key, value in msgspec.structs.asdict(tool.function).items() if value is not None}
    return {"type": tool.type, "function": said}
