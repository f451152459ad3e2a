"""Calls of functions: ``tools`` and ``tool_choice``, and how calls are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.requests.calling import Callee, Calling
from outrider.gateway.tool_calls.reading import Piece
from outrider.mesh.errors import InvalidRequest

MOST_CALLS = 16
"""Of one answer: a net below models that would go on calling for ever."""


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that may be called; its ``parameters`` are a JSON Schema, always enforced."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_./:-]{1,64}$")]
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
    Meta(description='"auto", "none", "required", or {"type": "function", "function": {"name": ...}}'),
]


class CalledFunction(msgspec.Struct):
    """What is called, with arguments as JSON, or the next piece of them."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToolCall(msgspec.Struct):
    """One call, whole or what a chunk adds to it; only chunks have an ``index``, and id, type and name come first."""

    function: CalledFunction
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET


def call_id(answer: str, place: int) -> str:
    """Names the ``place``-th call of an answer."""
    return f"call_{answer}_{place}"


def read_calls(pieces: Sequence[Piece], answer: str) -> list[ToolCall]:
    """The calls in the pieces of an answer of that name, each as far as it goes."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.place is None:
            continue
        if piece.name is not None:
            calls.append(ToolCall(CalledFunction("", piece.name), call_id(answer, piece.place), "function"))
        calls[piece.place].function.arguments += piece.text
    return calls


def calling(
    tools: list[Tool], choice: ToolChoice | None, parallel: bool, where: str = "function.parameters"
) -> Calling | None:
    """What may or has to be called, if anything; `InvalidRequest` for a choice that cannot be honoured.

    ``where`` is the place of a function's parameters in a tool, as the client writes it.
    """
    if not tools:
        if choice in (None, "none", "auto"):
            return None
        raise InvalidRequest("tool_choice may only be given with tools", param="tool_choice")
    if choice == "none":
        return None
    if isinstance(choice, NamedTool):
        return _one(tools, choice.function.name, where)
    callees = tuple(map(_callee, tools))
    return Calling(callees, choice != "required", MOST_CALLS if parallel else 1, "tools")


def _one(tools: list[Tool], name: str, where: str) -> Calling:
    for place, tool in enumerate(tools):
        if tool.function.name == name:
            return Calling((_callee(tool),), may_talk=False, most=1, param=f"tools[{place}].{where}")
    there = ", ".join(tool.function.name for tool in tools)
    raise InvalidRequest(f"tool_choice names {name}; there are: {there}", param="tool_choice")


def _callee(tool: Tool) -> Callee:
    return Callee(tool.function.name, msgspec.json.encode(tool.function.schema).decode())


def shown(tools: list[Tool]) -> str:
    """Tools as a template expects them, as a JSON array without what the client did not say; "" for none."""
    return msgspec.json.encode([_said_of(tool) for tool in tools]).decode() if tools else ""


def _said_of(tool: Tool) -> dict[str, Any]:
    said = {key: value for key, value in msgspec.structs.asdict(tool.function).items() if value is not None}
    return {"type": tool.type, "function": said}
