"""Writes answers and chunks of completions and chats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.openai.best_of import likeliest
from outrider.gateway.api.openai.forms import CHAT, COMPLETION, Form, calls_form
from outrider.gateway.api.openai.json_types import (
    Answer,
    AnswerOf,
    Choice,
    CompletionDetails,
    Delta,
    DeltaChoice,
    DraftBody,
    Extra,
    PromptDetails,
    RequestMetrics,
    SpeculationMetrics,
    TextChoice,
    UsageBody,
)
from outrider.gateway.api.openai.prompt_logprobs import PromptLogprobs, Wanted
from outrider.gateway.api.openai.thoughts import thinking_form
from outrider.gateway.api.schema.logprobs import token_name
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.gateway.schemas.parameters import ParameterTypes
from outrider.gateway.stream.reassembly import split
from outrider.mesh.errors import NotFound
from outrider.wire.frames import Draft, Finish, Frame, Usage
from outrider.wire.ids import unpack_ids


class Shape(msgspec.Struct, frozen=True, tag="chunks"):
    """The form of chunks that the client asked for.

    ``functions`` names the functions that a chat may call, if ``bare`` also without the marks of the model's format;
    ``types`` are those of each function's parameters.
    With ``include_usage``, the stream ends with its usage; with ``continuous_usage``, each chunk holds the usage so
    far. ``ignored`` names the parameters without effect. An answer with one choice
    ``shows_metrics`` of its guesses, and with ``timed`` has its times. ``prompt`` says which log-probabilities of the
    prompt a whole answer has. ``thoughts`` in front of a chat's answers are shown or hidden; else they are text. Sizes
    and times of ``obfuscated`` chunks do not depend on the text. With ``token_ids``, choices have the ids of
    their tokens and of their prompts. A whole answer shows the ``kept`` likeliest choices of each prompt, 0 shows all;
    if that took log-probabilities for which nobody asked, it ``hides_logprobs``.
    """

    kind: Literal["completion", "chat"]
    functions: tuple[str, ...]
    return_tokens: bool
    include_usage: bool
    continuous_usage: bool = False
    ignored: tuple[str, ...] = ()
    bare: bool = False
    shows_metrics: bool = False
    types: tuple[ParameterTypes, ...] = ()
    thoughts: Literal["", "shown", "hidden"] = ""
    obfuscated: bool = False
    timed: bool = False
    prompt: Wanted | None = None
    token_ids: bool = False
    kept: int = 0
    hides_logprobs: bool = False

    def form(self, request_id: str, served: ServedModel) -> Form:
        """The form of the chunks of request ``request_id``, which the model ``served`` answers."""
        form = CHAT if self.kind == "chat" else COMPLETION
        if self.functions:
            form = calls_form(served.calls, self.functions, self.types, request_id, bare=self.bare)
        if self.thoughts and served.thoughts is not None:
            form = thinking_form(form, shown=self.thoughts == "shown")
        return form


encode_shape = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Shape).decode


def decode_shape(data: bytes) -> Shape:
    """The form in ``data``; raises `NotFound` if it is the form of a response."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise NotFound("there is no stream with this id: the id belongs to a response", param="id") from None


class AnswerWriter:
    """Writes the answer to a request in the form of ``shape``: all writers of one request write the same."""

    def __init__(self, shape: Shape, key: Key, record: Record) -> None:
        self._form = form = shape.form(key.request, record.served)
        self._seeds, self._answers = record.seeds, record.answers
        self._return_tokens, self._ignored = shape.return_tokens, shape.ignored or UNSET
        self._shows_metrics = shape.shows_metrics and record.choices == 1
        self._prompts = record.prompts if shape.token_ids else None
        self._kept, self._hides_logprobs = shape.kept, shape.hides_logprobs
        self._first_indices = record.first_indices
        self._id, self._created = f"{form.prefix}-{key.request}", record.created
        self._model, self._fingerprint = record.served.name, fingerprint(record.served)
        self._written = [0] * record.choices

    @property
    def opening(self) -> list[Answer]:
        """The opening chunks of a stream, if its form has any."""
        make = self._form.opening
        if make is None:
            return []
        openings = [self._part([make(index)]) for index in range(len(self._written))]
        if self._prompts is not None:
            for index, opening in enumerate(openings):
                opening.prompt_token_ids = unpack_ids(self._prompts[index // self._answers])
        return openings

    def whole(self, frames: Sequence[Frame], prompts: Sequence[PromptLogprobs] = ()) -> Answer:
        """The whole answer; a choice has a joined frame in ``frames``, and maybe an entry in ``prompts``."""
        places = [*range(len(frames))]
        if self._kept:
            places = likeliest(frames, self._answers, self._kept)
        shown = [frames[place] for place in places]
        if self._kept and self._hides_logprobs:
            shown = [msgspec.structs.replace(frame, likelihoods=None) for frame in shown]
        choices = [self._form.choice(frame, index, 0) for index, frame in enumerate(shown)]
        extras = [self._extra(frame, place) for frame, place in zip(shown, places, strict=True)]
        extra = extras[0]
        if len(extras) > 1:
            total = _total(frames, self._answers)
            extra = Extra(steps=total.steps, seed=self._seeds[0], lossy=total.lossy or UNSET, choices=extras)
        extra.ignored = self._ignored
        answer = self._answer(self._form.whole, choices, _usage(_total(frames, self._answers)), extra)
        answer.metrics = self._metrics(frames)
        for choice, frame, place in zip(choices, shown, places, strict=True):
            self._add_ids(choice, frame, place)
            if isinstance(choice, TextChoice):
                choice.prompt_logprobs = prompts[place] if prompts else UNSET
            else:
                answer.prompt_logprobs = prompts[0] if prompts else UNSET
                answer.prompt_token_ids = UNSET if self._prompts is None else unpack_ids(self._prompts[0])
        return answer

    def chunk(
        self, frame: Frame, index: int, usage: UsageBody | UnsetType | None, *, last: bool = False
    ) -> Answer | None:
        """The chunk for a ``frame`` of choice ``index``; None if the chunk would be empty.

        ``last`` marks a frame with the last tokens of an answer that the model ended.
        """
        length = sum(map(len, frame.texts))
        choice = self._form.delta(frame, index, self._written[index], last)
        self._written[index] += length
        self._add_ids(choice, frame, index)
        empty = _is_empty(choice) and frame.finish is None and frame.likelihoods is None
        detailed = self._return_tokens or frame.drafts is not None
        if empty and not detailed and self._prompts is None:
            return None
        if not detailed and frame.finish is None:
            return self._part([choice], usage)
        extra = self._extra(frame, index)
        if frame.finish is not None:
            extra.ignored = self._ignored
        return self._part([choice], usage, extra)

    @property
    def plain(self) -> bool:
        """Whether the chunks of frames that hold tokens alone differ in their texts alone."""
        return self._form.plain and not self._return_tokens and self._prompts is None and len(self._seeds) == 1

    def text_chunk(self, text: str, usage: UsageBody | UnsetType | None) -> Answer:
        """The chunk of a `plain` answer for a frame with this ``text``."""
        return self._part([self._form.delta(Frame("", 0, [], [text], [], None), 0, 0, False)], usage)

    def parts(self, frame: Frame) -> list[Frame]:
        """``frame``, split into the parts that have a chunk of their own."""
        apart = self._form.apart and frame.finish is not None and frame.tokens
        return list(split(frame, len(frame.tokens))) if apart else [frame]

    def chunks(self, frame: Frame) -> Iterator[Answer]:
        """The chunks for a ``frame`` of the only choice."""
        index = frame.first_index + len(frame.tokens) if frame.finish is Finish.STOP else None
        for part in self.parts(frame):
            chunk = self.chunk(part, 0, None, last=part.first_index + len(part.tokens) == index)
            if chunk is not None:
                yield chunk

    def last(self, frames: Sequence[Frame]) -> Answer:
        """The usage chunk, which follows the last frames of all choices."""
        total = _total(frames, self._answers)
        verifier = frames[0].verifier or UNSET
        extra = Extra(steps=total.steps, seed=self._seeds[0], verifier=verifier, ignored=self._ignored)
        answer = self._part([], _usage(total), extra)
        answer.metrics = self._metrics(frames)
        return answer

    def totals(self, frames: Sequence[Frame]) -> tuple[int, int, Usage]:
        """Tokens of the prompts and of the answers that end with ``frames``, and their usage."""
        total = _total(frames, self._answers)
        return total.prompt_tokens, total.completion_tokens, total

    def _metrics(self, frames: Sequence[Frame]) -> RequestMetrics | UnsetType:
        usage = frames[0].usage
        shown = self._shows_metrics and usage is not None and usage.verified
        return RequestMetrics(_speculation(usage)) if shown and usage is not None else UNSET

    def _part(
        self, choices: list[Choice], usage: UsageBody | UnsetType | None = UNSET, extra: Extra | UnsetType = UNSET
    ) -> Answer:
        return self._answer(self._form.part, choices, usage, extra)

    def _answer(
        self, name: str, choices: list[Choice], usage: UsageBody | UnsetType | None, extra: Extra | UnsetType
    ) -> Answer:
        return AnswerOf(self._id, name, self._created, self._model, self._fingerprint, choices, usage, extra)

    def _add_ids(self, choice: Choice, frame: Frame, place: int) -> None:
        """Adds the ids of a frame, and those of the prompt where the first chunk of a completion's choice is."""
        if self._prompts is None:
            return
        choice.token_ids = frame.tokens
        if isinstance(choice, TextChoice) and frame.first_index <= self._first_indices[place]:
            choice.prompt_token_ids = unpack_ids(self._prompts[place // self._answers])

    def _extra(self, frame: Frame, index: int) -> Extra:
        return extra(frame, self._seeds[index], self._return_tokens)


def _is_empty(choice: Choice) -> bool:
    if isinstance(choice, TextChoice):
        return choice.text == ""
    return not isinstance(choice, DeltaChoice) or choice.delta == Delta()


def extra(frame: Frame, seed: int, return_tokens: bool) -> Extra:
    """The field ``outrider`` for ``frame``, whose choice has ``seed``."""
    fields = Extra()
    if return_tokens:
        fields = Extra(frame.first_index, frame.tokens, frame.texts, frame.guessed_by)
    if frame.drafts is not None:
        fields.drafts = [_draft(draft) for draft in frame.drafts]
    if frame.finish is not None:
        fields.steps = frame.usage.steps if frame.usage else UNSET
        fields.seed, fields.verifier = seed, frame.verifier or UNSET
        fields.lossy = True if frame.usage and frame.usage.lossy else UNSET
    return fields


def _draft(draft: Draft) -> DraftBody:
    texts = [token_name(data) for data in draft.data]
    return DraftBody(draft.first_index, draft.tokens, texts, draft.parents, draft.guessed_by, draft.accepted)


@lru_cache
def fingerprint(served: ServedModel) -> str:
    """``system_fingerprint``, which depends on the model's name and vocabulary."""
    return "fp_" + hashlib.sha256(f"{served.name}\0{served.vocabulary}".encode()).hexdigest()[:12]


def _total(frames: Sequence[Frame], answers: int) -> Usage:
    """The usage of all choices; a prompt, which has ``answers`` choices, counts once."""
    used = [frame.usage or Usage(0, 0) for frame in frames]
    return Usage(
        sum(usage.prompt_tokens for usage in used[::answers]),
        sum(usage.completion_tokens for usage in used),
        sum(usage.cached_tokens for usage in used[::answers]),
        sum(usage.accepted_tokens for usage in used),
        sum(usage.rejected_tokens for usage in used),
        sum(usage.steps for usage in used),
        any(usage.lossy for usage in used),
        predicted=_total_predicted([usage.predicted for usage in used]),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in used),
    )


def _total_predicted(counts: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    known = [each for each in counts if each is not None]
    return (sum(right for right, _ in known), sum(wrong for _, wrong in known)) if known else None


def _speculation(usage: Usage) -> SpeculationMetrics:
    steps, guesses = sum(usage.verified), usage.accepted_tokens + usage.rejected_tokens
    accepted = sum(number * count for number, count in enumerate(usage.verified))
    return SpeculationMetrics(
        mean_acceptance_length=1 + accepted / steps,
        draft_acceptance_rate=accepted / guesses,
        acceptance_histogram=usage.verified,
        num_spec_steps=steps,
        num_accepted_draft_tokens=accepted,
        num_draft_tokens=guesses,
        num_spec_tokens=len(usage.verified) - 1,
    )


def _usage(usage: Usage) -> UsageBody:
    return UsageBody(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptDetails(usage.cached_tokens),
        CompletionDetails(*usage.told_guesses, usage.reasoning_tokens),
    )
