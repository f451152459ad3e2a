"""Converts items of OpenAI's Responses API to messages of a chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.responses.json_types import OutputCall, OutputItem, OutputMessage
from outrider.gateway.api.schema.parameters import convert
from outrider.gateway.api.schema.prompts import require_few_messages
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

    def messages(self) -> list[Message]:
        """The item as messages for a template."""
        called = {"id": self.call_id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}
        return [{"role": "assistant", "content": "", "tool_calls": [called]}]


class FunctionCallOutput(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function_call_output"
):
    """The result of a called function."""

    call_id: str
    output: Parts
    id: str | None = None
    status: str | None = None

    def messages(self) -> list[Message]:
        """The item as messages for a template."""
        return [{"role": "tool", "tool_call_id": self.call_id, "content": _text(self.output)}]


Item = Annotated[
    InputMessage | FunctionCall | FunctionCallOutput,
    Meta(description="a message, a function_call or a function_call_output (no images, no files)"),
]


def messages(value: str | list[dict[str, Any]]) -> list[Message]:
    """``input`` as messages; calls join an assistant's message before them. Raises `InvalidRequest` for a bad item."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    require_few_messages(value, "input")
    conversation: list[Message] = []
    for place, raw in enumerate(value):
        for message in _item(raw, f"input[{place}]").messages():
            if "tool_calls" in message and conversation and conversation[-1]["role"] == "assistant":
                conversation[-1].setdefault("tool_calls", []).extend(message["tool_calls"])
            else:
                conversation.append(message)
    return conversation


def answer_messages(output: list[OutputItem]) -> list[Message]:
    """A response's output as a message of the conversation, without a call that was cut off; none without output."""
    calls = [
        {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}
        for item in output
        if isinstance(item, OutputCall) and item.status == "completed"
    ]
    text = "".join(part.text for item in output if isinstance(item, OutputMessage) for part in item.content)
    message: Message = {"role": "assistant", "content": text}
    return [message | {"tool_calls": calls} if calls else message] if output else []


def _item(raw: dict[str, Any], name: str) -> InputMessage | FunctionCall | FunctionCallOutput:
    fields = {"type": "message"} | {key: value for key, value in raw.items() if value is not None}
    item: InputMessage | FunctionCall | FunctionCallOutput = convert(name, fields, Item)
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
