"""The tools of Anthropic's Messages API, as those of a chat."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.parameters import convert
from outrider.gateway.api.schema.tools import Function, FunctionName, NamedTool, Tool, ToolChoice

_OWN = (None, "custom")
_SEARCH = "tool_search_tool_"
_SCHEMA = re.compile(r"tools\[(\d+)\]\.function\.parameters")


class Definition(msgspec.Struct, frozen=True):
    """A function that may be called; ``input_schema`` is a JSON Schema."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_./:-]{1,128}$")]
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


_DEFINITION = Annotated[Definition, Meta(description='an object like {"name": ..., "input_schema": {...}}')]


class Auto(msgspec.Struct, frozen=True, tag_field="type", tag="auto"):
    """The model may call."""

    disable_parallel_tool_use: bool = False


class Required(msgspec.Struct, frozen=True, tag_field="type", tag="any"):
    """The model has to call."""

    disable_parallel_tool_use: bool = False


class Named(msgspec.Struct, frozen=True, tag_field="type", tag="tool"):
    """The model has to call ``name``."""

    name: str
    disable_parallel_tool_use: bool = False


class Nothing(msgspec.Struct, frozen=True, tag_field="type", tag="none"):
    """The model may not call."""

    disable_parallel_tool_use: bool = False


Choice = Annotated[
    Auto | Required | Named | Nothing,
    Meta(
        description='an object like {"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}'
    ),
]


class Tools(msgspec.Struct, frozen=True):
    """Functions for a chat, and the place of each in the request's ``tools``."""

    offered: list[Tool]
    places: list[int]

    @classmethod
    def read(cls, raw: list[dict[str, Any]], changes: Mapping[str, bool], ignored: list[str] | None) -> Tools:
        """The functions in ``raw``; tools that the server itself would have to run are left out, as `note_part` does.

        ``changes`` says of tools whether they are offered. Others are unless they are deferred, until a search of the
        client's finds them: a search of the server's is not there, and with it nothing is deferred. Raises
        `InvalidRequest`.
        """
        tools = cls([], [])
        searched = any(str(tool.get("type")).startswith(_SEARCH) for tool in raw)
        for place, tool in enumerate(raw):
            if (kind := tool.get("type")) not in _OWN:
                note_part(f"tools[{place}].{kind}", "", ignored)
                continue
            made: Definition = convert(f"tools[{place}]", tool, _DEFINITION)
            if not changes.get(made.name, searched or not made.defer_loading):
                continue
            function = Function(made.name, made.description, made.input_schema, made.strict)
            tools.offered.append(Tool("function", function))
            tools.places.append(place)
        return tools

    def named(self, text: str) -> str:
        """``text`` of a chat with the names of this API: those of schemas, at the places of the request."""
        return _SCHEMA.sub(lambda match: f"tools[{self.places[int(match[1])]}].input_schema", text)


def chat_choice(choice: Auto | Required | Named | Nothing | None) -> ToolChoice | None:
    """``choice`` as that of a chat."""
    if isinstance(choice, Named):
        return NamedTool("function", FunctionName(choice.name))
    kinds: dict[type, Literal["auto", "required", "none"]] = {Auto: "auto", Required: "required", Nothing: "none"}
    return None if choice is None else kinds[type(choice)]
