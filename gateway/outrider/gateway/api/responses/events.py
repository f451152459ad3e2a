"""The typed events of a response's stream."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.json_types import Extra
from outrider.gateway.api.responses.json_types import OutputItem, Response, TextPart, ThoughtPart
from outrider.gateway.api.schema.logprobs import TokenLogprob


class _Event(msgspec.Struct, tag_field="type", kw_only=True):
    sequence_number: int = 0


class _ResponseEvent(_Event):
    response: Response


class Created(_ResponseEvent, tag="response.created"):
    """The response has been accepted."""


class InProgress(_ResponseEvent, tag="response.in_progress"):
    """The response is being generated."""


class Completed(_ResponseEvent, tag="response.completed"):
    """The response is complete."""


class Incomplete(_ResponseEvent, tag="response.incomplete"):
    """The response ended before it was complete."""


class Failed(_ResponseEvent, tag="response.failed"):
    """The response failed, or was cancelled."""


class ItemAdded(_Event, tag="response.output_item.added"):
    """An item of the output begins."""

    output_index: int
    item: OutputItem


class ItemDone(_Event, tag="response.output_item.done"):
    """An item of the output has ended."""

    output_index: int
    item: OutputItem


class _ItemEvent(_Event):
    output_index: int
    item_id: str


class PartAdded(_ItemEvent, tag="response.content_part.added"):
    """A part of a message or of a thought begins."""

    part: TextPart | ThoughtPart
    content_index: int = 0


class PartDone(_ItemEvent, tag="response.content_part.done"):
    """A part of a message or of a thought has ended."""

    part: TextPart | ThoughtPart
    content_index: int = 0


class TextDelta(_ItemEvent, tag="response.output_text.delta"):
    """The text of one step of the verifier; with ``return_tokens`` also its tokens."""

    delta: str
    logprobs: list[TokenLogprob]
    outrider: Extra | UnsetType = UNSET
    content_index: int = 0


class TextDone(_ItemEvent, tag="response.output_text.done"):
    """The text of a part."""

    text: str
    logprobs: list[TokenLogprob]
    content_index: int = 0


class ThoughtDelta(_ItemEvent, tag="response.reasoning_text.delta"):
    """The text of a thought in one step of the verifier."""

    delta: str
    content_index: int = 0


class ThoughtDone(_ItemEvent, tag="response.reasoning_text.done"):
    """The text of a thought."""

    text: str
    content_index: int = 0


class ArgumentsDelta(_ItemEvent, tag="response.function_call_arguments.delta"):
    """The next piece of a call's arguments."""

    delta: str


class ArgumentsDone(_ItemEvent, tag="response.function_call_arguments.done"):
    """The arguments of a call."""

    arguments: str
    name: str


class Failure(_Event, tag="error"):
    """The stream broke off, as `Failed` says behind it; a client may resume it after ``sequence_number``."""

    message: str
    code: str | None
    param: str | None


Event = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ThoughtDelta
    | ThoughtDone
    | ArgumentsDelta
    | ArgumentsDone
    | Failure
)
"""All events, by their ``type``."""
