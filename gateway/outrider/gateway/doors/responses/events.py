"""The typed events of a response's stream."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.doors.openai.json_types import Extra
from outrider.gateway.doors.responses.json_types import OutputItem, Response, TextPart
from outrider.gateway.doors.schema.logprobs import TokenLogprob


class _Event(msgspec.Struct, tag_field="type", kw_only=True):
    sequence_number: int = 0


class _Whole(_Event):
    response: Response


class Created(_Whole, tag="response.created"):
    """The response has been taken."""


class InProgress(_Whole, tag="response.in_progress"):
    """It is being generated."""


class Completed(_Whole, tag="response.completed"):
    """It is whole."""


class Incomplete(_Whole, tag="response.incomplete"):
    """It ended before it was whole."""


class Failed(_Whole, tag="response.failed"):
    """It failed, or was cancelled."""


class ItemAdded(_Event, tag="response.output_item.added"):
    """An item of the output begins."""

    output_index: int
    item: OutputItem


class ItemDone(_Event, tag="response.output_item.done"):
    """An item of the output has ended."""

    output_index: int
    item: OutputItem


class _OfItem(_Event):
    output_index: int
    item_id: str


class PartAdded(_OfItem, tag="response.content_part.added"):
    """A part of a message begins."""

    part: TextPart
    content_index: int = 0


class PartDone(_OfItem, tag="response.content_part.done"):
    """A part of a message has ended."""

    part: TextPart
    content_index: int = 0


class TextDelta(_OfItem, tag="response.output_text.delta"):
    """What one step of the verifier decided; with ``return_tokens`` also the tokens."""

    delta: str
    logprobs: list[TokenLogprob]
    outrider: Extra | UnsetType = UNSET
    content_index: int = 0


class TextDone(_OfItem, tag="response.output_text.done"):
    """The text of a part."""

    text: str
    logprobs: list[TokenLogprob]
    content_index: int = 0


class ArgumentsDelta(_OfItem, tag="response.function_call_arguments.delta"):
    """The next piece of a call's arguments."""

    delta: str


class ArgumentsDone(_OfItem, tag="response.function_call_arguments.done"):
    """The arguments of a call."""

    arguments: str
    name: str


class Failure(_Event, tag="error"):
    """The stream broke off, and may be taken up again behind ``sequence_number``."""

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
    | ArgumentsDelta
    | ArgumentsDone
    | Failure
)
"""All of them, by their ``type``."""
