"""The forms of completions, chats and calls of functions, whole and in chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
from outrider.gateway.api.openai.json_types import (
    AssistantMessage,
    Choice,
    Delta,
    DeltaChoice,
    Finish,
    MessageChoice,
    TextChoice,
)
from outrider.gateway.api.schema.logprobs import ChatLogprobs, chat_logprobs, text_logprobs
from outrider.gateway.api.schema.tools import CalledFunction, ToolCall, call_id, read_calls
from outrider.gateway.schemas.parameters import ParameterTypes
from outrider.gateway.tool_calls.answer_reader import AnswerPiece, AnswerReader
from outrider.wire.calls import CallStyle
from outrider.wire.frames import Frame


class Form(msgspec.Struct, frozen=True):
    """The form of completions or of chats.

    ``prefix`` begins the answer's id; ``whole`` and ``part`` are the ``object`` of answers and of chunks. ``choice``
    and ``delta`` make a choice of an answer and of a chunk, from a frame, the choice's index and the number of its
    earlier characters; ``delta`` also gets whether the frame holds the last tokens. ``opening`` makes the first chunk
    of a choice, if there is one. With ``apart``, the finish reason has a chunk of its own. The chunk of a text
    alone is ``plain`` if it depends on the text and on the index alone.
    """

    prefix: str
    whole: str
    part: str
    opening: Callable[[int], Choice] | None
    choice: Callable[[Frame, int, int], Choice]
    delta: Callable[[Frame, int, int, bool], Choice]
    apart: bool = False
    plain: bool = True


def _text_choice(frame: Frame, index: int, offset: int) -> Choice:
    logprobs = None if frame.likelihoods is None else text_logprobs(frame, offset)
    return TextChoice("".join(frame.texts), _finish(frame), index, logprobs)


def _text_delta(frame: Frame, index: int, offset: int, last: bool) -> Choice:
    return _text_choice(frame, index, offset)


def _message_choice(frame: Frame, index: int, offset: int) -> Choice:
    return MessageChoice(AssistantMessage("".join(frame.texts)), _finish(frame), index, _logprobs(frame))


def _delta_choice(frame: Frame, index: int, offset: int, last: bool) -> Choice:
    text = "".join(frame.texts)
    return DeltaChoice(Delta(content=text) if text else Delta(), _finish(frame), index, _logprobs(frame))


def _logprobs(frame: Frame) -> ChatLogprobs | None:
    return None if frame.likelihoods is None else chat_logprobs(frame)


def _opening(index: int) -> Choice:
    return DeltaChoice(Delta(role="assistant", content=""), None, index)


COMPLETION = Form("cmpl", "text_completion", "text_completion", None, _text_choice, _text_delta)
CHAT = Form("chatcmpl", "chat.completion", "chat.completion.chunk", _opening, _message_choice, _delta_choice)


def calls_form(
    style: CallStyle, names: Sequence[str], types: Sequence[ParameterTypes], answer: str, *, bare: bool
) -> Form:
    """The form of one chat that may call ``names``, if ``bare`` also without marks; ``answer`` is the request's id.

    ``types`` are those of each function's parameters.
    The finish reason has its own chunk: the openai package misses the end of a call in a chunk that ends the answer.
    """
    readers: defaultdict[int, AnswerReader] = defaultdict(lambda: AnswerReader(style, names, types, bare=bare))

    def whole(frame: Frame, index: int, offset: int) -> Choice:
        reader = AnswerReader(style, names, types, bare=bare)
        message = _message(reader.take(frame), f"{answer}_{index}")
        return MessageChoice(message, _finish_of_calls(frame, reader), index, _logprobs(frame))

    def part(frame: Frame, index: int, offset: int, last: bool) -> Choice:
        reader = readers[index]
        delta = _delta(reader.take(frame, last=last), f"{answer}_{index}")
        return DeltaChoice(delta, _finish_of_calls(frame, reader), index, _logprobs(frame))

    return msgspec.structs.replace(CHAT, choice=whole, delta=part, apart=True, plain=False)


def _message(pieces: Sequence[AnswerPiece], answer: str) -> AssistantMessage:
    text = "".join(piece.text for piece in pieces if piece.place is None)
    calls = read_calls(pieces, answer)
    return AssistantMessage(text or None, tool_calls=calls) if calls else AssistantMessage(text)


def _delta(pieces: Sequence[AnswerPiece], answer: str) -> Delta:
    delta = Delta()
    if text := "".join(piece.text for piece in pieces if piece.place is None):
        delta.content = text
    if calls := [_addition(piece, answer) for piece in pieces if piece.place is not None]:
        delta.tool_calls = calls
    return delta


def _addition(piece: AnswerPiece, answer: str) -> ToolCall:
    place = piece.place or 0
    if piece.name is None:
        return ToolCall(CalledFunction(piece.text), index=place)
    return ToolCall(CalledFunction(piece.text, piece.name), call_id(answer, place), "function", place)


def _finish_of_calls(frame: Frame, reader: AnswerReader) -> Finish | None:
    return "tool_calls" if frame.finish == "stop" and reader.whole else _finish(frame)


def _finish(frame: Frame) -> Finish | None:
    if frame.finish is None:
        return None
    return "length" if frame.finish == "length" else "content_filter" if frame.finish == "content_filter" else "stop"
