"""What a response was asked with, as OpenAI's API lists it, and how many tokens an input has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.doors.responses.items import Message
from outrider.gateway.doors.responses.json_types import OutputCall, TextPart
from outrider.gateway.doors.schema.parameters import read_query
from outrider.mesh.errors import InvalidRequest


class InputPart(msgspec.Struct, tag_field="type", tag="input_text"):
    """Text that a client said."""

    text: str


class MessageItem(msgspec.Struct, tag_field="type", tag="message"):
    """A message of the conversation."""

    id: str
    role: Literal["user", "assistant", "system"]
    content: list[InputPart | TextPart]
    status: Literal["completed"] = "completed"


class CallOutputItem(msgspec.Struct, tag_field="type", tag="function_call_output"):
    """What a called function returned."""

    id: str
    call_id: str
    output: str
    status: Literal["completed"] = "completed"


InputItem = MessageItem | OutputCall | CallOutputItem


class InputItems(msgspec.Struct):
    """Some of a response's input items."""

    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class InputTokens(msgspec.Struct):
    """How many tokens a response would be asked with."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class InputQuery(msgspec.Struct, frozen=True):
    """Parameters of ``GET /v1/responses/{id}/input_items``."""

    limit: Annotated[int, Meta(ge=1, le=100, description="an integer from 1 to 100")] = 20
    order: Annotated[Literal["asc", "desc"], Meta(description="asc, or desc for the latest first")] = "desc"
    after: Annotated[str, Meta(description="the id of an item of the list")] | None = None


def input_items(request: str, conversation: list[Message], given: Mapping[str, str]) -> InputItems:
    """Those of the request of an id that are asked for; `InvalidRequest` for a query that cannot be honoured."""
    asked = read_query(given, InputQuery, {})
    items = [*_items(request, conversation)]
    if asked.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    if asked.after is not None and asked.after not in ids:
        raise InvalidRequest("after is the id of no item of this list", param="after")
    start = 0 if asked.after is None else ids.index(asked.after) + 1
    told = items[start : start + asked.limit]
    first, last = (told[0].id, told[-1].id) if told else (None, None)
    return InputItems(told, first, last, start + len(told) < len(items))


def _items(request: str, conversation: list[Message]) -> Iterator[InputItem]:
    for place, message in enumerate(conversation):
        name = f"{request}_in{place}"
        if message["role"] == "tool":
            yield CallOutputItem(f"fco_{name}", message["tool_call_id"], message["content"])
            continue
        calls: list[dict[str, Any]] = message.get("tool_calls", [])
        if message["content"] or not calls:
            kind = TextPart if message["role"] == "assistant" else InputPart
            yield MessageItem(f"msg_{name}", message["role"], [kind(message["content"])])
        for number, call in enumerate(calls):
            function = call["function"]
            yield OutputCall(f"fc_{name}_{number}", call["id"], function["name"], function["arguments"], "completed")
