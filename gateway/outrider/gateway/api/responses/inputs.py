"""The input items of a response, as OpenAI's API lists them, and the number of tokens of an input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.responses.items import Message
from outrider.gateway.api.responses.json_types import OutputCall, TextPart
from outrider.gateway.api.schema.parameters import read_query
from outrider.mesh.errors import InvalidRequest


class InputPart(msgspec.Struct, tag_field="type", tag="input_text"):
    """Text from the client."""

    text: str


class MessageItem(msgspec.Struct, tag_field="type", tag="message"):
    """A message of the conversation."""

    id: str
    role: Literal["user", "assistant", "system", "developer"]
    content: list[InputPart | TextPart]
    status: Literal["completed"] = "completed"


class CallOutputItem(msgspec.Struct, tag_field="type", tag="function_call_output"):
    """The result of a called function."""

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
    """The number of tokens of a response's input."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class InputQuery(msgspec.Struct, frozen=True):
    """Parameters of ``GET /v1/responses/{id}/input_items``."""

    limit: Annotated[int, Meta(ge=1, le=100, description="an integer from 1 to 100")] = 20
    order: Annotated[Literal["asc", "desc"], Meta(description="asc, or desc for the latest first")] = "desc"
    after: Annotated[str, Meta(description="the id of an item of the list")] | None = None


def input_items(request: str, conversation: list[Message], query: Mapping[str, str]) -> InputItems:
    """The input items of a request that ``query`` selects; raises `InvalidRequest` for a bad query."""
    selection = read_query(query, InputQuery)
    items = [*_items(request, conversation)]
    if selection.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    if selection.after is not None and selection.after not in ids:
        raise InvalidRequest("after is the id of no item of this list", param="after")
    start = 0 if selection.after is None else ids.index(selection.after) + 1
    page = items[start : start + selection.limit]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return InputItems(page, first, last, start + len(page) < len(items))


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
