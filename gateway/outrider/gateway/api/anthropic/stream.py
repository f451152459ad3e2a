"""The stream of a message's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TypeVar

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
from outrider.wire.frames import Finish, Frame

PING_S = 10.0
"""Seconds without an event after which clients are told that the stream lives."""
T = TypeVar("T")

_log = get_logger("anthropic")


class MessageStream:
    """Writes the events of a flight whose chat has the form ``shape``."""

    def __init__(self, flight: Flight, shape: Shape, thoughts: Thoughts, ping_s: float = PING_S) -> None:
        self._flight, self._ping_s = flight, ping_s
        self._writer = AnswerWriter(shape, flight.key, flight.record)
        self._blocks = BlockEvents(thoughts)

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes; events that are ready together come together. A failure is an event, too."""
        try:
            yield typed_event(self._start()) + typed_event(Ping())
            async with aclosing(self._flight.frames()) as batches, aclosing(pausing(batches, self._ping_s)) as news:
                async for batch in news:
                    events = [Ping()] if batch is None else [each for frame in batch[1] for each in self._events(frame)]
                    if events:
                        yield b"".join(map(typed_event, events))
        except OutriderError as error:
            yield typed_event(StreamFailure(messages_error(error)))
        except Exception:
            _log.exception("a stream failed", request=self._flight.key.request)
            yield typed_event(StreamFailure(messages_error(Internal())))

    def _start(self) -> MessageStart:
        record = self._flight.record
        used = MessageUsage(record.prompt_tokens[0], 0)
        return MessageStart(
            Message(id=message_id(self._flight.key.request), model=record.served.name, content=[], usage=used)
        )

    def _events(self, frame: Frame) -> Iterator[Event]:
        index = frame.first_index + len(frame.tokens) if frame.finish is Finish.STOP else None
        for part in self._writer.parts(frame):
            chunk = self._writer.chunk(part, 0, None, last=part.first_index + len(part.tokens) == index)
            if chunk is None:
                continue
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


async def pausing(batches: AsyncGenerator[T, None], pause_s: float) -> AsyncGenerator[T | None, None]:
    """``batches``, and None after each pause of ``pause_s`` seconds."""
    waiting: asyncio.Task[T | None] | None = None
    try:
        while True:
            waiting = waiting or asyncio.create_task(_next(batches))
            await asyncio.wait({waiting}, timeout=pause_s)
            if not waiting.done():
                yield None
                continue
            batch, waiting = waiting.result(), None
            if batch is None:
                return
            yield batch
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})


async def _next(batches: AsyncGenerator[T, None]) -> T | None:
    return await anext(batches, None)
