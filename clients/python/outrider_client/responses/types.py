"""Responses and their events, typed. Fields that are not known here are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from outrider_client.types import CompletionDetails, Detail, PromptDetails


class OutputPart(msgspec.Struct, frozen=True):
    """A part of a message; ``logprobs`` are OpenAI's objects."""

    type: str
    text: str = ""
    logprobs: list[dict[str, Any]] = []


class OutputItem(msgspec.Struct, frozen=True):
    """What a response holds: a ``message`` with its ``content``, or a ``function_call`` with JSON as ``arguments``."""

    id: str
    type: str
    status: str = ""
    content: list[OutputPart] = []
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class ResponseUsage(msgspec.Struct, frozen=True):
    """What a response cost, in tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: PromptDetails = PromptDetails()
    output_tokens_details: CompletionDetails = CompletionDetails()


class Response(msgspec.Struct, frozen=True):
    """A response as it stands; ``created_at`` is in seconds since 1970.

    ``status`` is ``queued``, ``in_progress``, ``completed``, ``incomplete``, ``failed`` or ``cancelled``.
    """

    id: str
    created_at: int
    model: str
    status: str
    output: list[OutputItem] = []
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    previous_response_id: str | None = None
    background: bool = False
    metadata: dict[str, str] = {}
    usage: ResponseUsage | None = None
    outrider: Detail | None = None

    @property
    def text(self) -> str:
        """All text of its messages."""
        return "".join(part.text for item in self.output for part in item.content)


class ResponseEvent(msgspec.Struct, frozen=True):
    """One of OpenAI's typed events; which fields it has says its ``type``."""

    type: str
    sequence_number: int
    response: Response | None = None
    output_index: int | None = None
    item: OutputItem | None = None
    delta: str = ""
    arguments: str = ""
    outrider: Detail | None = None

    @property
    def text(self) -> str:
        """The text that it adds; nothing in an event that adds none."""
        return self.delta if self.type == "response.output_text.delta" else ""
