"""Converts items of OpenAI's Responses API to messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.responses.json_types import OutputCall, OutputItem, OutputMessage, OutputThought
from outrider.gateway.api.responses.tools import qualified
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.parameters import convert
from outrider.gateway.api.schema.prompts import require_few_messages, require_text
from outrider.gateway.api.schema.thoughts import Seal
from outrider.mesh.errors import InvalidRequest

Message = dict[str, Any]


class InputText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="input_text"):
    """Text from the client."""

    text: str


class OutputText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="output_text"):
    """Text of an earlier answer."""

    text: str
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[Any] | None = None


Parts = str | list[InputText | OutputText]


class InputMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="message"):
    """A message. Its ``type`` may be left out."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Parts
    id: str | None = None
    status: str | None = None
    phase: str | None = None

    def messages(self) -> list[Message]:
        """The item as messages for a template."""
        return [{"role": self.role, "content": _text(self.content)}]


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function_call"):
    """A call that the model made."""

    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None

    def messages(self) -> list[Message]:
        """The item as messages for a template."""
        return [{"role": "assistant", "content": "", "tool_calls": [_call(self)]}]


class FunctionCallOutput(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function_call_output"
):
    """The result of a called function."""

    call_id: str
    output: Parts
    id: str | None = None
    status: str | None = None
    name: str | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None

    def messages(self) -> list[Message]:
        """The item as messages for a template."""
        return [{"role": "tool", "tool_call_id": self.call_id, "content": _text(self.output)}]


class SummaryText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="summary_text"):
    """The summary of a thought."""

    text: str


class ThoughtText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="reasoning_text"):
    """The text of a thought."""

    text: str


class PlainText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """The text of a thought, as Codex has it."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="reasoning"):
    """A thought before a message or a call of the assistant: readable, or sealed."""

    summary: list[SummaryText] = []
    content: list[ThoughtText | PlainText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: str | None = None


_Item = InputMessage | FunctionCall | FunctionCallOutput | Reasoning
Item = Annotated[
    _Item,
    Meta(description="a message, a reasoning, a function_call or a function_call_output (no images, no files)"),
]
_IDLE = ("code_interpreter_call", "file_search_call", "image_generation_call", "mcp_list_tools", "web_search_call")
"""Items that tell what other servers did: what came of it is in the messages behind them."""


class Thoughts(msgspec.Struct, frozen=True):
    """Reads sealed thoughts of ``tenant``; ``ignored`` is as in `note_part`."""

    seal: Seal
    tenant: str
    ignored: list[str] | None

    def of(self, item: Reasoning, name: str) -> str:
        """The thought of ``item``; empty, and noted, if only another server can read it."""
        if item.content:
            return "".join(part.text for part in item.content)
        thought = self.seal.open(item.encrypted_content or "", self.tenant)
        if thought is None and item.encrypted_content is not None:
            note_part(f"{name}.encrypted_content", "", self.ignored)
        return thought or ""


def messages(value: str | list[dict[str, Any]], thoughts: Thoughts) -> list[Message]:
    """``input`` as messages; calls join an assistant's message before them. Raises `InvalidRequest` for a bad item."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    require_few_messages(value, "input")
    require_text(value, "input")
    conversation: list[Message] = []
    for message in _messages(value, thoughts):
        joins = conversation and conversation[-1]["role"] == "assistant" and "reasoning_content" not in message
        if "tool_calls" in message and joins:
            conversation[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
        else:
            conversation.append(message)
    return conversation


def _messages(value: list[dict[str, Any]], thoughts: Thoughts) -> Iterator[Message]:
    """The messages of each item; a thought goes into the assistant's message behind it."""
    thought = ""
    for place, raw in enumerate(value):
        name = f"input[{place}]"
        if raw.get("type") in _IDLE:
            note_part(f"{name}.{raw['type']}", "", thoughts.ignored)
            continue
        item = _item(raw, name)
        if isinstance(item, Reasoning):
            thought += thoughts.of(item, name)
            continue
        for message in item.messages():
            thinks = thought and message["role"] == "assistant"
            yield message | {"reasoning_content": thought} if thinks else message
            thought = ""


def leading(conversation: list[Message]) -> int:
    """Number of messages of the system at the beginning of ``conversation``."""
    return next((at for at, message in enumerate(conversation) if message["role"] not in _LEADS), len(conversation))


def joined_lead(conversation: list[Message]) -> list[Message]:
    """``conversation`` with one message of the system at its beginning: many templates take one only."""
    count = leading(conversation)
    if count < 2:
        return conversation
    text = "\n\n".join(message["content"] for message in conversation[:count])
    return [{"role": conversation[0]["role"], "content": text}, *conversation[count:]]


_LEADS = ("system", "developer")


def answer_messages(output: list[OutputItem]) -> list[Message]:
    """A response's output as a message of the conversation, without a call that was cut off; none without output."""
    calls = [_call(item) for item in output if isinstance(item, OutputCall) and item.status == "completed"]
    text = "".join(part.text for item in output if isinstance(item, OutputMessage) for part in item.content)
    thought = "".join(part.text for item in output if isinstance(item, OutputThought) for part in item.content)
    message: Message = {"role": "assistant", "content": text}
    message |= ({"reasoning_content": thought} if thought else {}) | ({"tool_calls": calls} if calls else {})
    return [message] if output else []


def _call(item: FunctionCall | OutputCall) -> dict[str, Any]:
    name = qualified(item.namespace or None, item.name)
    return {"id": item.call_id, "type": "function", "function": {"name": name, "arguments": item.arguments}}


def _item(raw: dict[str, Any], name: str) -> _Item:
    for member in ("content", "output"):
        require_text(raw.get(member), f"{name}.{member}")
    fields = {"type": "message"} | {key: value for key, value in raw.items() if value is not None}
    item: _Item = convert(name, fields, Item)
    if isinstance(item, InputMessage) and item.role != "assistant" and _has_output(item.content):
        raise InvalidRequest(f"{name}.content: only the assistant has output_text", param=f"{name}.content")
    if isinstance(item, FunctionCall) and not _is_object(item.arguments):
        raise InvalidRequest(f"{name}.arguments must be the text of a JSON object", param=f"{name}.arguments")
    return item


def _is_object(arguments: str) -> bool:
    """Whether arguments are JSON of an object; no text, which stands for no arguments, is as good."""
    try:
        return not arguments.strip() or isinstance(msgspec.json.decode(arguments), dict | None)
    except msgspec.DecodeError:
        return False


def _has_output(content: Parts) -> bool:
    return not isinstance(content, str) and any(isinstance(part, OutputText) for part in content)


def _text(parts: Parts) -> str:
    return parts if isinstance(parts, str) else "".join(part.text for part in parts)
