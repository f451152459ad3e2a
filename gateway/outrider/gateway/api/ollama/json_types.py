"""The JSON that Ollama's clients read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

DoneReason = Literal["stop", "length", "load"]


class Called(msgspec.Struct):
    """The function of a call, with its arguments as an object."""

    name: str
    arguments: dict[str, Any]


class Call(msgspec.Struct):
    """A call of a function."""

    function: Called


class Said(msgspec.Struct):
    """A message of the assistant, or its next piece."""

    content: str = ""
    thinking: str | UnsetType = UNSET
    tool_calls: list[Call] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"


class Costs(msgspec.Struct, kw_only=True):
    """What the last line adds: tokens, and nanoseconds. There is one time for prompt and answer together."""

    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


class ChatLine(Costs, kw_only=True):
    """A line of ``/api/chat``, or its whole answer."""

    model: str
    created_at: str
    message: Said
    done: bool
    done_reason: DoneReason | UnsetType = UNSET


class GenerateLine(Costs, kw_only=True):
    """A line of ``/api/generate``, or its whole answer."""

    model: str
    created_at: str
    response: str
    thinking: str | UnsetType = UNSET
    done: bool
    done_reason: DoneReason | UnsetType = UNSET


class EmbedAnswer(msgspec.Struct):
    """Answer of ``/api/embed``."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OldEmbedAnswer(msgspec.Struct):
    """Answer of ``/api/embeddings``."""

    embedding: list[float]


class Details(msgspec.Struct):
    """What is known of a model's files: nothing."""

    parent_model: str = ""
    format: str = ""
    family: str = "outrider"
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""


class Tag(msgspec.Struct):
    """A model; the digest is that of its vocabulary."""

    name: str
    model: str
    modified_at: str
    digest: str
    size: int = 0
    details: Details = msgspec.field(default_factory=Details)


class Tags(msgspec.Struct):
    """All models."""

    models: list[Tag]


class Running(Tag):
    """A model that is loaded."""

    expires_at: str = "9999-12-31T00:00:00Z"
    size_vram: int = 0
    context_length: int = 0


class RunningModels(msgspec.Struct):
    """All models that are loaded, which are all that are served."""

    models: list[Running]


class Shown(msgspec.Struct):
    """One model."""

    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str
    details: Details = msgspec.field(default_factory=Details)
    modelfile: str = ""
    parameters: str = ""
    template: str = ""
