"""How completions, chats and calls of functions are told, whole and in chunks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from outrider.gateway.openai.logprobs import chat_logprobs, text_logprobs
from outrider.gateway.openai.shapes import (
    AssistantMessage,
    Choice,
    Delta,
    DeltaChoice,
    Finish,
    MessageChoice,
    TextChoice,
)
from outrider.gateway.openai.tools import Calling, ToolCall
from outrider.wire.frames import Frame


class Form(msgspec.Struct, frozen=True):
    """How completions and chats differ in shape.

    ``choice`` and ``delta`` make a choice, whole or in a chunk, of a frame, the choice's index, and how many
    characters it has had before; ``opening`` is what a stream begins with, where it begins with anything. Where its
    end is ``apart``, a stream tells it in a chunk of its own.
    """

    prefix: str
    whole: str
    part: str
    opening: Callable[[int], Choice] | None
    choice: Callable[[Frame, int, int], Choice]
    delta: Callable[[Frame, int, int], Choice]
    apart: bool = False


def _text_choice(frame: Frame, index: int, offset: int) -> Choice:
    return TextChoice("".join(frame.texts), _finish(frame), index, text_logprobs(frame, offset))


def _message_choice(frame: Frame, index: int, offset: int) -> Choice:
    return MessageChoice(AssistantMessage("".join(frame.texts)), _finish(frame), index, chat_logprobs(frame))


def _delta_choice(frame: Frame, index: int, offset: int) -> Choice:
    text = "".join(frame.texts)
    return DeltaChoice(Delta(content=text) if text else Delta(), _finish(frame), index, chat_logprobs(frame))


def _opening(index: int) -> Choice:
    return DeltaChoice(Delta(role="assistant", content=""), None, index)


COMPLETION = Form("cmpl", "text_completion", "text_completion", None, _text_choice, _text_choice)
CHAT = Form("chatcmpl", "chat.completion", "chat.completion.chunk", _opening, _message_choice, _delta_choice)


def calls_form(calling: Calling, answer: str) -> Form:
    """The form of one chat whose answer is calls; ``answer`` is its id. Chunks tell them whole, once they are.

    The openai package misses that a call is whole where the same chunk says that the answer has ended.
    """
    said: dict[int, str] = {}
    told: set[int] = set()

    def finish(frame: Frame, called: bool) -> Finish | None:
        return "tool_calls" if called and frame.finish == "stop" else _finish(frame)

    def whole(frame: Frame, index: int, offset: int) -> Choice:
        text = "".join(frame.texts)
        calls = calling.calls(text, f"{answer}_{index}")
        message = AssistantMessage(text) if calls is None else AssistantMessage(None, tool_calls=calls)
        return MessageChoice(message, finish(frame, calls is not None), index, chat_logprobs(frame))

    def part(frame: Frame, index: int, offset: int) -> Choice:
        text = said[index] = said.get(index, "") + "".join(frame.texts)
        delta = Delta()
        if index not in told and (frame.finish is not None or text.rstrip().endswith(("}", "]"))):
            calls = calling.calls(text, f"{answer}_{index}")
            if calls is not None:
                told.add(index)
                delta = Delta(tool_calls=_numbered(calls))
            elif frame.finish is not None:
                delta = Delta(content=text)
        return DeltaChoice(delta, finish(frame, index in told), index, chat_logprobs(frame))

    return msgspec.structs.replace(CHAT, choice=whole, delta=part, apart=True)


def _numbered(calls: list[ToolCall]) -> list[ToolCall]:
    for place, call in enumerate(calls):
        call.index = place
    return calls


def _finish(frame: Frame) -> Finish | None:
    return None if frame.finish is None else ("length" if frame.finish == "length" else "stop")
