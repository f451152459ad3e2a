"""The JSON of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.json_types import Extra
from outrider.gateway.api.schema.logprobs import TokenLogprob

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class TextPart(msgspec.Struct, tag_field="type", tag="output_text"):
    """Text of a message."""

    text: str
    annotations: list[str] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprob] = msgspec.field(default_factory=list)


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """The text of an answer."""

    id: str
    status: ItemStatus
    content: list[TextPart]
    role: Literal["assistant"] = "assistant"


class OutputCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a function; ``arguments`` are JSON."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | UnsetType = UNSET


class ThoughtPart(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """Text of a thought."""

    text: str


class OutputThought(msgspec.Struct, tag_field="type", tag="reasoning"):
    """The thought before an answer; ``encrypted_content`` is the same, sealed, if the client asked for it."""

    id: str
    content: list[ThoughtPart]
    status: ItemStatus
    encrypted_content: str | UnsetType = UNSET
    summary: list[str] = msgspec.field(default_factory=list)


OutputItem = OutputMessage | OutputCall | OutputThought


class InputDetails(msgspec.Struct):
    """``usage.input_tokens_details``; writes to a cache are not counted."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """``usage.output_tokens_details``."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    """``usage``."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct):
    """Why a response failed."""

    code: Literal["server_error", "invalid_prompt"]
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class Echo(msgspec.Struct, kw_only=True):
    """The parameters of the request that its response repeats."""

    background: bool
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"] = "disabled"


class Response(Echo, kw_only=True):
    """A response so far; ``created_at`` is in seconds since 1970."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    model: str
    output: list[OutputItem]
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    service_tier: Literal["default"] = "default"
    outrider: Extra | UnsetType = UNSET


class Deleted(msgspec.Struct):
    """A deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
