"""Calls of functions: ``tools`` and ``tool_choice`` of requests, and the calls of answers."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.json_schemas import enforce, require_small
from outrider.gateway.request.generation import CallableFunction, CallRules
from outrider.gateway.schemas.enforced import Enforced, enforced
from outrider.gateway.tool_calls.answer_reader import AnswerPiece
from outrider.mesh.errors import InvalidRequest

_LETTERS = string.ascii_letters + string.digits
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


class AllowedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the tools that may be called."""

    type: Literal["function"]
    function: FunctionName


class AllowedTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The functions that may be called, where others are only shown to the model, and whether one has to be."""

    mode: Literal["auto", "required"]
    tools: Annotated[tuple[AllowedTool, ...], Meta(min_length=1, max_length=128)]


class NamedTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``tool_choice`` that names a function, or those that are allowed."""

    type: Literal["function", "allowed_tools"]
    function: FunctionName | None = None
    allowed_tools: AllowedTools | None = None


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool,
    Meta(
        description='"auto", "none", "required", {"type": "function", "function": {"name": ...}}, '
        'or {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}'
    ),
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
    """The id of call number ``place``, from 0 on, of an answer: Mistral's templates take 9 letters and digits alone."""
    number = int.from_bytes(blake2b(f"{answer}_{place}".encode(), digest_size=8).digest())
    return "".join(_LETTERS[number // len(_LETTERS) ** position % len(_LETTERS)] for position in range(9))


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
    places: dict[str, int] = {}
    for place, tool in enumerate(tools):
        places.setdefault(tool.function.name, place)
    chosen: Iterable[int] = range(len(tools))
    if isinstance(choice, NamedTool):
        chosen = _places(choice, places)
        choice = None if choice.allowed_tools is None else choice.allowed_tools.mode
        if choice is None:
            (place,) = chosen
            param = f"tools[{place}].{where}"
            return CallRules((tools[place].function.callable_at(param),), may_talk=False, most=1, param=param)
    functions = tuple(tools[place].function.callable_at(f"tools[{place}].{where}") for place in chosen)
    return CallRules(functions, choice != "required", MOST_CALLS if parallel else 1, "tools")


def _places(choice: NamedTool, places: dict[str, int]) -> list[int]:
    """Where among the tools those are that ``choice`` names; raises `InvalidRequest` for one that is not there."""
    if (choice.function is None) == (choice.type == "function") or (choice.allowed_tools is None) == (
        choice.type == "allowed_tools"
    ):
        raise InvalidRequest(f"tool_choice of type {choice.type} must have {choice.type} alone", param="tool_choice")
    allowed = choice.allowed_tools.tools if choice.allowed_tools else ()
    names = [choice.function.name] if choice.function else [tool.function.name for tool in allowed]
    for name in names:
        if name not in places:
            raise InvalidRequest(f"tool_choice names {name}; there are: {', '.join(places)}", param="tool_choice")
    return sorted({places[name] for name in names})


def template_tools(tools: list[Tool]) -> str:
    """``tools`` for a template: a JSON array without the fields that the client left out; "" for no tools."""
    return msgspec.json.encode([_template_tool(tool) for tool in tools]).decode() if tools else ""


def _template_tool(tool: Tool) -> dict[str, Any]:
    function = {key: value for key, value in msgspec.structs.asdict(tool.function).items() if value is not None}
    return {"type": tool.type, "function": function}
