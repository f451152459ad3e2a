"""The tools of a response: functions, by themselves or in namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.tools import AllowedTool, AllowedTools, Function, FunctionName, NamedTool, Tool

_IDLE = ("allowed_callers", "async", "defer_loading", "output_schema")
"""Members of functions that have no effect."""
_KINDS = ("function", "namespace")
_NAME = "^[a-zA-Z0-9_./:-]{1,64}$"


class FunctionTool(Function, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """A function of ``tools``."""


class NamespaceTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="namespace"):
    """Functions that have a name in common."""

    name: Annotated[str, Meta(pattern=_NAME)]
    tools: list[FunctionTool]
    description: str | None = None


class NamedFunction(FunctionName, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """``tool_choice`` that names a function, where needed in its ``namespace``."""

    namespace: str | None = None

    @property
    def chosen(self) -> NamedTool:
        """The choice of a chat."""
        return NamedTool("function", self.function)

    @property
    def function(self) -> FunctionName:
        """The name by which the model knows the function."""
        return FunctionName(qualified(self.namespace, self.name))


class AllowedFunctions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="allowed_tools"):
    """``tool_choice`` that names the functions that may be called, where others are only shown to the model."""

    mode: Literal["auto", "required"]
    tools: Annotated[tuple[NamedFunction, ...], Meta(min_length=1, max_length=128)]

    @property
    def chosen(self) -> NamedTool:
        """The choice of a chat."""
        tools = tuple(AllowedTool("function", tool.function) for tool in self.tools)
        return NamedTool("allowed_tools", allowed_tools=AllowedTools(self.mode, tools))


def qualified(namespace: str | None, name: str) -> str:
    """The name by which the model knows a function; formats of calls have no namespaces."""
    return name if namespace is None else f"{namespace}__{name}"


def chat_tools(tools: Sequence[FunctionTool | NamespaceTool]) -> list[Tool]:
    """``tools`` as those of a chat."""
    return [
        Tool("function", Function(qualified(namespace, tool.name), tool.description, tool.parameters, tool.strict))
        for namespace, tool in _functions(tools)
    ]


def namespaces(tools: Sequence[FunctionTool | NamespaceTool]) -> dict[str, str]:
    """The namespace of each function that has one, by its `qualified` name."""
    return {
        qualified(namespace, tool.name): namespace for namespace, tool in _functions(tools) if namespace is not None
    }


def _functions(tools: Sequence[FunctionTool | NamespaceTool]) -> Iterator[tuple[str | None, FunctionTool]]:
    for tool in tools:
        if isinstance(tool, FunctionTool):
            yield None, tool
        else:
            yield from ((tool.name, function) for function in tool.tools)


def known_tools(tools: Any, ignored: list[str] | None, place: str = "tools") -> Any:
    """``tools`` without those of other kinds, which this server does not run, and without members that have no effect.

    Adds the names of these to ``ignored``; raises `InvalidRequest` if that is None. What is no tool stays as it is.
    """
    if not isinstance(tools, list):
        return tools
    kept = []
    for index, tool in enumerate(tools):
        name = f"{place}[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and (kind not in _KINDS or (kind == "namespace" and place != "tools")):
            note_part(f"{name}.{kind}", "", ignored)
            continue
        kept.append(_known(tool, name, ignored) if isinstance(tool, dict) else tool)
    return kept


def _known(tool: dict[str, Any], name: str, ignored: list[str] | None) -> dict[str, Any]:
    for idle in _IDLE:
        if tool.get(idle) not in (None, False):
            note_part(f"{name}.{idle}", "", ignored)
    known = {key: value for key, value in tool.items() if key not in _IDLE}
    return known | {"tools": known_tools(known["tools"], ignored, f"{name}.tools")} if "tools" in known else known
