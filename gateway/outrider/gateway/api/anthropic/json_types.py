"""The JSON that Anthropic's clients read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from outrider.gateway.errors import MessagesErrorBody

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text of an answer."""

    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """The thought before an answer; ``signature`` is the thought, sealed."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a function."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct):
    """``usage``, in tokens; all of the prompt are ``input_tokens`` and ``cache_read_input_tokens`` together."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class Message(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    """An answer, or the beginning of one, which has no ``stop_reason``."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TokenCount(msgspec.Struct):
    """The number of tokens of a request's prompt."""

    input_tokens: int


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The answer begins."""

    message: Message


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Nothing has happened."""


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: Block


class TextChange(msgspec.Struct, tag_field="type", tag="text_delta"):
    """The next text."""

    text: str


class ThinkingChange(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """The next text of a thought."""

    thinking: str


class SignatureChange(msgspec.Struct, tag_field="type", tag="signature_delta"):
    """The signature of a thought, at its end."""

    signature: str


class InputChange(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """The next piece of the JSON of a call's ``input``."""

    partial_json: str


BlockDelta = TextChange | ThinkingChange | SignatureChange | InputChange


class BlockChange(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """The next piece of a block."""

    index: int
    delta: BlockDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """A block has ended."""

    index: int


class End(msgspec.Struct):
    """Why an answer ended; ``stop_sequence`` is the one that ended it, if one did."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageChange(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The answer has ended."""

    delta: End
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The last event."""


class StreamFailure(msgspec.Struct, tag_field="type", tag="error"):
    """The answer failed; the last event."""

    error: MessagesErrorBody


Event = MessageStart | Ping | BlockStart | BlockChange | BlockStop | MessageChange | MessageStop | StreamFailure
"""All events of a stream, by their ``type``."""
