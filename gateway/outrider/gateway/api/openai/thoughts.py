"""Chats whose models think first: the thought stands beside the message, whole and in chunks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from outrider.gateway.api.openai.forms import Form
from outrider.gateway.api.openai.json_types import AssistantMessage, Choice, DeltaChoice, MessageChoice
from outrider.gateway.api.schema.logprobs import chat_logprobs
from outrider.gateway.stream.reassembly import split
from outrider.wire.frames import Frame


def thinking_form(form: Form, *, shown: bool) -> Form:
    """``form`` for answers that may begin with a thought, which is told if it is to be ``shown``."""

    def whole(frame: Frame, index: int, offset: int) -> Choice:
        return form.choice(frame, index, offset) if not frame.thought else added(frame, form.choice, index, offset)

    def part(frame: Frame, index: int, offset: int, last: bool) -> Choice:
        if not frame.thought:
            return form.delta(frame, index, offset, last)
        return added(frame, lambda rest, *_: form.delta(rest, index, offset, last), index, offset)

    def added(frame: Frame, make: Callable[[Frame, int, int], Choice], index: int, offset: int) -> Choice:
        thought, rest = split(frame, frame.thought)
        choice = make(rest, index, offset)
        assert isinstance(choice, (MessageChoice, DeltaChoice))
        if frame.likelihoods is not None:
            choice.logprobs = chat_logprobs(frame)
        text = "".join(thought.texts)
        told = choice.message if isinstance(choice, MessageChoice) else choice.delta
        if text and shown:
            told.reasoning_content = told.reasoning = text
        if isinstance(told, AssistantMessage):
            told.content = told.content or None
        return choice

    return msgspec.structs.replace(form, choice=whole, delta=part, plain=False)
