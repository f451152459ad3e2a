"""The stream of a message's events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from outrider.gateway.api.anthropic.blocks import BlockEvents, Thoughts, end, usage
from outrider.gateway.api.anthropic.json_types import (
    Event,
    Message,
    MessageChange,
    MessageStart,
    MessageStop,
    MessageUsage,
    Ping,
    StreamFailure,
)
from outrider.gateway.api.http.sse import typed_event
from outrider.gateway.api.openai.answers import AnswerWriter, Shape
from outrider.gateway.api.openai.json_types import DeltaChoice
from outrider.gateway.errors import messages_error
from outrider.gateway.request.flight import Flight
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame

PING = typed_event(Ping())

_log = get_logger("anthropic")


class MessageStream:
    """Writes the events of a flight whose chat has the form ``shape``."""

    def __init__(self, flight: Flight, shape: Shape, thoughts: Thoughts) -> None:
        self._flight = flight
        self._writer = AnswerWriter(shape, flight.key, flight.record)
        self._blocks = BlockEvents(thoughts)

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes; events that are ready together come together. A failure is an event, too."""
        try:
            yield typed_event(self._start()) + PING
            async with aclosing(self._flight.frames()) as batches:
                async for _, frames in batches:
                    if events := [typed_event(each) for frame in frames for each in self._events(frame)]:
                        yield b"".join(events)
        except OutriderError as error:
            yield failure(error)
        except Exception:
            _log.exception("a stream failed", request=self._flight.key.request)
            yield failure(Internal())

    def _start(self) -> MessageStart:
        record = self._flight.record
        used = MessageUsage(record.prompt_tokens[0], 0)
        return MessageStart(
            Message(id=message_id(self._flight.key.request), model=record.served.name, content=[], usage=used)
        )

    def _events(self, frame: Frame) -> Iterator[Event]:
        for chunk in self._writer.chunks(frame):
            (choice,) = chunk.choices
            assert isinstance(choice, DeltaChoice)
            yield from self._blocks.take(choice.delta, choice.delta.reasoning_content or "")
            if choice.finish_reason is not None:
                yield from self._blocks.end()
                yield MessageChange(end(choice.finish_reason, frame), usage(frame))
                yield MessageStop()


def message_id(request: str) -> str:
    """The id of the message that answers a request."""
    return f"msg_{request}"


def failure(error: OutriderError) -> bytes:
    """The event of ``error``, the last one of a stream."""
    return typed_event(StreamFailure(messages_error(error)))
