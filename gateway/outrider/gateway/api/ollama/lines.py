"""Writes the lines of an answer, and its whole."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET
from outrider.gateway.api.ollama.json_types import Call, Called, ChatLine, DoneReason, GenerateLine, Said
from outrider.gateway.api.openai.answers import AnswerWriter, Shape
from outrider.gateway.api.openai.json_types import DeltaChoice, MessageChoice, TextChoice
from outrider.gateway.api.schema.tools import CalledFunction
from outrider.gateway.errors import OllamaErrorAnswer
from outrider.gateway.request.flight import Flight
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

Line = ChatLine | GenerateLine
_REASONS: dict[str, DoneReason] = {"length": "length"}

_log = get_logger("ollama")


class Pieces:
    """Turns what the chunks of a chat add into what lines tell; calls of functions are kept until they are complete."""

    def __init__(self) -> None:
        self._calls: list[CalledFunction] = []

    def take(self, choice: DeltaChoice) -> Said:
        """The text that a chunk adds."""
        for call in choice.delta.tool_calls or ():
            if call.function.name is not UNSET:
                self._calls.append(msgspec.structs.replace(call.function))
            else:
                self._calls[-1].arguments += call.function.arguments
        return Said(choice.delta.content or "", choice.delta.reasoning_content or UNSET)

    @property
    def calls(self) -> list[Call] | msgspec.UnsetType:
        """All calls so far."""
        return _calls(self._calls)


class LineWriter:
    """Writes the lines of a flight whose answer has the form ``shape``, as messages if it ``chats``.

    A call of a function is told when it is complete. ``began`` is when the request came, in seconds of the monotonic
    clock.
    """

    def __init__(self, flight: Flight, shape: Shape, *, chats: bool, began: float) -> None:
        self._flight, self._chats, self._began = flight, chats, began
        self._writer = AnswerWriter(shape, flight.key, flight.record)
        self._model, self._pieces = flight.record.served.name, Pieces()

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The lines as bytes; a failure is a line, too."""
        try:
            async with aclosing(self._flight.frames()) as batches:
                async for _, frames in batches:
                    if lines := [line for frame in frames for line in self._lines(frame)]:
                        yield b"".join(map(_encoded, lines))
        except OutriderError as error:
            yield failure(error)
        except Exception:
            _log.exception("a stream failed", request=self._flight.key.request)
            yield failure(Internal())

    def whole(self, frame: Frame) -> Line:
        """The answer of which ``frame`` is all."""
        (choice,) = self._writer.whole([frame]).choices
        if isinstance(choice, TextChoice):
            return self._last(Said(choice.text), choice.finish_reason, frame)
        assert isinstance(choice, MessageChoice)
        message = choice.message
        said = Said(
            message.content or "",
            message.reasoning_content or UNSET,
            _calls([call.function for call in message.tool_calls or ()]),
        )
        return self._last(said, choice.finish_reason, frame)

    def _lines(self, frame: Frame) -> Iterator[Line]:
        for chunk in self._writer.chunks(frame):
            (choice,) = chunk.choices
            said = self._pieces.take(choice) if isinstance(choice, DeltaChoice) else Said(getattr(choice, "text", ""))
            if choice.finish_reason is not None:
                said.tool_calls = self._pieces.calls
                yield self._last(said, choice.finish_reason, frame)
            elif said.content or said.thinking:
                yield self._line(said, done=False)

    def _last(self, said: Said, reason: str | None, frame: Frame) -> Line:
        line, used = self._line(said, done=True), frame.usage
        line.done_reason = _REASONS.get(reason or "", "stop")
        line.total_duration = line.eval_duration = round((time.monotonic() - self._began) * 1e9)
        line.load_duration = line.prompt_eval_duration = 0
        line.prompt_eval_count = used.prompt_tokens if used else 0
        line.eval_count = used.completion_tokens if used else 0
        return line

    def _line(self, said: Said, *, done: bool) -> Line:
        if self._chats:
            return ChatLine(model=self._model, created_at=now(), message=said, done=done)
        return GenerateLine(
            model=self._model, created_at=now(), response=said.content, thinking=said.thinking, done=done
        )


def loaded(model: str, *, chats: bool) -> Line:
    """The answer to a request without a prompt: the model is there."""
    if chats:
        return ChatLine(model=model, created_at=now(), message=Said(), done=True, done_reason="load")
    return GenerateLine(model=model, created_at=now(), response="", done=True, done_reason="load")


def failure(error: OutriderError) -> bytes:
    """The line that ends a stream for an ``error``."""
    return _encoded(OllamaErrorAnswer(error.message))


def lifeline(model: str, *, chats: bool) -> bytes:
    """A line that adds nothing: a sign of life."""
    if chats:
        return _encoded(ChatLine(model=model, created_at=now(), message=Said(), done=False))
    return _encoded(GenerateLine(model=model, created_at=now(), response="", done=False))


def now() -> str:
    """The time, as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _calls(calls: Sequence[CalledFunction]) -> list[Call] | msgspec.UnsetType:
    """Calls with their arguments as objects; one that was cut off has none."""
    return [Call(Called(call.name or "", _object(call.arguments))) for call in calls] or UNSET


def _object(text: str) -> dict[str, object]:
    try:
        return dict(msgspec.json.decode(text, type=dict))
    except msgspec.DecodeError:
        return {}


def _encoded(line: Line | OllamaErrorAnswer) -> bytes:
    return msgspec.json.encode(line) + b"\n"
