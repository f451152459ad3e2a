"""The JSON that OpenAI's clients read."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.prompt_logprobs import PromptLogprobs
from outrider.gateway.api.openai.timings import Timings
from outrider.gateway.api.schema.logprobs import ChatLogprobs, TextLogprobs
from outrider.gateway.api.schema.tools import ToolCall

Finish = Literal["stop", "length", "tool_calls", "content_filter"]


class PromptDetails(msgspec.Struct):
    """``usage.prompt_tokens_details``."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """``usage.completion_tokens_details``."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int


class UsageBody(msgspec.Struct):
    """``usage``; before the end of an answer it has no details."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET


class DraftBody(msgspec.Struct):
    """The tree of guesses that one step verified, as `outrider.wire.frames.Draft`; ``texts`` are its tokens' names."""

    first_index: int
    tokens: list[int]
    texts: list[str]
    parents: list[int]
    guessed_by: list[str]
    accepted: list[int]


class Extra(msgspec.Struct, omit_defaults=True):
    """``outrider``: what OpenAI's API has no fields for. Only the last chunk has ``steps`` and the fields after it.

    ``ignored`` names the parameters that had no effect.
    """

    first_index: int | UnsetType = UNSET
    tokens: list[int] | UnsetType = UNSET
    texts: list[str] | UnsetType = UNSET
    guessed_by: list[str] | UnsetType = UNSET
    drafts: list[DraftBody] | UnsetType = UNSET
    steps: int | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    verifier: str | UnsetType = UNSET
    lossy: bool | UnsetType = UNSET
    ignored: tuple[str, ...] | UnsetType = UNSET
    choices: list[Extra] | UnsetType = UNSET


class SpeculationMetrics(msgspec.Struct):
    """``metrics.speculative_decoding``, as vLLM has it.

    A step counts if it verified guesses; ``acceptance_histogram[i]`` steps accepted ``i`` of them.
    ``num_spec_tokens`` is the depth of the deepest guess.
    """

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int


class RequestMetrics(msgspec.Struct):
    """``metrics``, with gateway.speculation_metrics."""

    speculative_decoding: SpeculationMetrics


class TextChoice(msgspec.Struct):
    """A completion's choice, whole or in a chunk; the ids are vLLM's, with ``return_token_ids``."""

    text: str
    finish_reason: Finish | None
    index: int = 0
    logprobs: TextLogprobs | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Delta(msgspec.Struct, omit_defaults=True):
    """What a chunk adds to a chat's message; a thought has the names that DeepSeek and vLLM gave it."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class DeltaChoice(msgspec.Struct):
    """A chat's choice in a chunk."""

    delta: Delta
    finish_reason: Finish | None
    index: int = 0
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class AssistantMessage(msgspec.Struct):
    """A chat's answer."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class MessageChoice(msgspec.Struct):
    """A chat's choice as a whole."""

    message: AssistantMessage
    finish_reason: Finish | None
    index: int = 0
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


Choice = TextChoice | DeltaChoice | MessageChoice
_C = TypeVar("_C", bound=Choice)


class AnswerOf(msgspec.Struct, Generic[_C]):
    """An answer, or a chunk of one; of a completion, each choice has its ``prompt_token_ids``."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[_C]
    usage: UsageBody | UnsetType | None = UNSET
    outrider: Extra | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


Answer = AnswerOf[Choice]
