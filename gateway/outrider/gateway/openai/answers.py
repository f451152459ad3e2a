"""What OpenAI's clients read: answers and stream chunks of completions and chats."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.models import Served
from outrider.wire.frames import Frame, Usage

Finish = Literal["stop", "length"]


class PromptDetails(msgspec.Struct):
    """``usage.prompt_tokens_details``."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """``usage.completion_tokens_details``."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class UsageBody(msgspec.Struct):
    """``usage``."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Extra(msgspec.Struct, omit_defaults=True):
    """``outrider``: what OpenAI's API has no place for; ``steps`` and what follows stand on the last chunk."""

    first_index: int | UnsetType = UNSET
    tokens: list[int] | UnsetType = UNSET
    texts: list[str] | UnsetType = UNSET
    guessed_by: list[str] | UnsetType = UNSET
    steps: int | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    verifier: str | UnsetType = UNSET


class TextChoice(msgspec.Struct):
    """A completion's choice, whole or in a chunk."""

    text: str
    finish_reason: Finish | None
    index: int = 0
    logprobs: None = None


class Delta(msgspec.Struct, omit_defaults=True):
    """What a chunk adds to a chat's message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class DeltaChoice(msgspec.Struct):
    """A chat's choice in a chunk."""

    delta: Delta
    finish_reason: Finish | None
    index: int = 0
    logprobs: None = None


class AssistantMessage(msgspec.Struct):
    """A chat's answer."""

    content: str
    role: str = "assistant"
    refusal: None = None


class MessageChoice(msgspec.Struct):
    """A chat's choice as a whole."""

    message: AssistantMessage
    finish_reason: Finish | None
    index: int = 0
    logprobs: None = None


Choice = TextChoice | DeltaChoice | MessageChoice


class Answer(msgspec.Struct):
    """An answer or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: UsageBody | UnsetType | None = UNSET
    outrider: Extra | UnsetType = UNSET


class Form(msgspec.Struct, frozen=True):
    """How completions and chats differ in shape."""

    prefix: str
    whole: str
    part: str
    opening: Choice | None
    choice: Callable[[str, Finish | None], Choice]
    delta: Callable[[str, Finish | None], Choice]


COMPLETION = Form("cmpl", "text_completion", "text_completion", None, TextChoice, TextChoice)
CHAT = Form(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    DeltaChoice(Delta(role="assistant", content=""), None),
    lambda text, finish: MessageChoice(AssistantMessage(text), finish),
    lambda text, finish: DeltaChoice(Delta(content=text) if text else Delta(), finish),
)


class Writer:
    """Writes the answer to one request in one form."""

    def __init__(self, form: Form, request_id: str, served: Served, seed: int, *, return_tokens: bool) -> None:
        self._form, self._seed, self._return_tokens = form, seed, return_tokens
        self._id = f"{form.prefix}-{request_id}"
        self._created = int(time.time())
        self._served = served

    @property
    def opening(self) -> Choice | None:
        """The choice of the chunk that a stream begins with, in forms that have one."""
        return self._form.opening

    def whole(self, frame: Frame, verifier: str) -> Answer:
        """The answer, from all its frames joined."""
        choice = self._form.choice("".join(frame.texts), _finish(frame))
        return self._answer(self._form.whole, [choice], _usage(frame.usage), self._extra(frame, verifier))

    def chunk(self, frame: Frame, verifier: str, usage: UsageBody | UnsetType | None) -> Answer | None:
        """A stream's chunk for ``frame``; None where there is nothing to tell yet."""
        text = "".join(frame.texts)
        if not text and frame.finish is None and not self._return_tokens:
            return None
        return self.part([self._form.delta(text, _finish(frame))], usage, self._extra(frame, verifier))

    def part(
        self, choices: list[Choice], usage: UsageBody | UnsetType | None = UNSET, extra: Extra | UnsetType = UNSET
    ) -> Answer:
        """Any chunk."""
        return self._answer(self._form.part, choices, usage, extra)

    def last(self, frame: Frame, verifier: str) -> Answer:
        """The chunk about usage that follows the last frame."""
        return self.part([], _usage(frame.usage), self._summary(frame, verifier, Extra()))

    def _answer(
        self, name: str, choices: list[Choice], usage: UsageBody | UnsetType | None, extra: Extra | UnsetType
    ) -> Answer:
        return Answer(
            self._id, name, self._created, self._served.name, fingerprint(self._served), choices, usage, extra
        )

    def _extra(self, frame: Frame, verifier: str) -> Extra | UnsetType:
        if not self._return_tokens:
            return UNSET if frame.finish is None else self._summary(frame, verifier, Extra())
        extra = Extra(frame.first_index, frame.tokens, frame.texts, frame.guessed_by)
        return extra if frame.finish is None else self._summary(frame, verifier, extra)

    def _summary(self, frame: Frame, verifier: str, extra: Extra) -> Extra:
        extra.steps = frame.usage.steps if frame.usage else UNSET
        extra.seed, extra.verifier = self._seed, verifier
        return extra


def fingerprint(served: Served) -> str:
    """``system_fingerprint``: another model or another vocabulary has another."""
    return "fp_" + hashlib.sha256(f"{served.name}\0{served.vocabulary}".encode()).hexdigest()[:12]


def _finish(frame: Frame) -> Finish | None:
    return None if frame.finish is None else ("length" if frame.finish == "length" else "stop")


def _usage(usage: Usage | None) -> UsageBody | None:
    if usage is None:
        return None
    return UsageBody(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptDetails(usage.cached_tokens),
        CompletionDetails(usage.accepted_tokens, usage.rejected_tokens),
    )
