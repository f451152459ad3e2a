"""Calls of functions: ``tools`` and ``tool_choice`` of requests, and the calls of answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.json_schemas import enforce, require_small
from outrider.gateway.request.generation import CallableFunction, CallRules
from outrider.gateway.schemas.enforced import Enforced, enforced
from outrider.gateway.tool_calls.answer_reader import AnswerPiece
from outrider.mesh.errors import InvalidRequest

MOST_CALLS = 16
"""Most calls of one answer: stops a model that would call without end."""


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A function that may be called; its ``parameters`` are a JSON Schema, as in `NamedSchema`."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_./:-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def callable_at(self, param: str) -> CallableFunction:
        """The function with the schema of its arguments, which is at ``param``; raises `InvalidRequest`."""
        text, unenforced = enforce(lambda: self._kept, param, self.strict, f" of the function {self.name}")
        return CallableFunction(self.name, text, unenforced)

    @cached_property
    def _kept(self) -> Enforced:
        """What is enforced of the schema; a function without parameters takes an empty object."""
        none = {"type": "object", "additionalProperties": False}
        return enforced(none if self.parameters is None else self.parameters)


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
    """The called function, with its arguments as JSON, or the next piece of them."""

    arguments: str
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToolCall(msgspec.Struct):
    """One call, or what a chunk adds to it. Only chunks have ``index``; a call's first chunk has id, type and name."""

    function: CalledFunction
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET


def call_id(answer: str, place: int) -> str:
    """The id of call number ``place``, from 0 on, of an answer."""
    return f"call_{answer}_{place}"


def read_calls(pieces: Sequence[AnswerPiece], answer: str) -> list[ToolCall]:
    """The calls in ``pieces``, each as far as it goes; ``answer`` is the id of the answer."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if piece.place is None:
            continue
        if piece.name is not None:
            calls.append(ToolCall(CalledFunction("", piece.name), call_id(answer, piece.place), "function"))
        calls[piece.place].function.arguments += piece.text
    return calls


def read_call_rules(
    tools: list[Tool], choice: ToolChoice | None, parallel: bool, where: str = "function.parameters"
) -> CallRules | None:
    """The rules for calls; None if no function may be called. Raises `InvalidRequest` for an impossible ``choice``.

    ``where`` is the path of a function's parameters inside a tool, for messages.
    """
    if not tools:
        if choice in (None, "none", "auto"):
            return None
        raise InvalidRequest("tool_choice may only be given with tools", param="tool_choice")
    if choice == "none":
        return None
    require_small((tool.function.parameters for tool in tools), "tools")
    if isinstance(choice, NamedTool):
        return _forced_call(tools, choice.function.name, where)
    functions = tuple(tool.function.callable_at(f"tools[{place}].{where}") for place, tool in enumerate(tools))
    return CallRules(functions, choice != "required", MOST_CALLS if parallel else 1, "tools")


def _forced_call(tools: list[Tool], name: str, where: str) -> CallRules:
    for place, tool in enumerate(tools):
        if tool.function.name == name:
            param = f"tools[{place}].{where}"
            return CallRules((tool.function.callable_at(param),), may_talk=False, most=1, param=param)
    names = ", ".join(tool.function.name for tool in tools)
    raise InvalidRequest(f"tool_choice names {name}; there are: {names}", param="tool_choice")


def template_tools(tools: list[Tool]) -> str:
    """``tools`` for a template: a JSON array without the fields that the client left out; "" for no tools."""
    return msgspec.json.encode([_template_tool(tool) for tool in tools]).decode() if tools else ""


def _template_tool(tool: Tool) -> dict[str, Any]:
    function = {key: value for key, value in msgspec.structs.asdict(tool.function).items() if value is not None}
    return {"type": tool.type, "function": function}
