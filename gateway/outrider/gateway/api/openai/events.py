"""Writes the events of a stream: chunks of its frames, each with the position behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.http.sse import Position, Tail, Template, done, event, with_retry
from outrider.gateway.api.openai.answers import AnswerWriter, Shape
from outrider.gateway.api.openai.json_types import Answer, UsageBody
from outrider.gateway.api.openai.timings import Stopwatch
from outrider.gateway.errors import error_answer
from outrider.gateway.request.flight import Flight
from outrider.gateway.stream.reassembly import join, split
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame

_RETRY_MS = 1000

_log = get_logger("openai")


def failure(error: OutriderError) -> bytes:
    """The events of a stream that could not begin: no position, hence without ids."""
    return b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(error_answer(error))


class EventWriter:
    """Writes the events of a flight from the position ``start`` on; earlier frames are read, but not written.

    A chunk holds one frame, or a fixed part of one: readers that resume get the same chunks as those that stayed.
    A writer that ``joins`` makes one frame of those that are ready together.
    """

    def __init__(self, flight: Flight, shape: Shape, start: Position, *, joins: bool = False) -> None:
        self._joins = joins
        self._flight, self._shape, self._start = flight, shape, start
        self._writer = writer = AnswerWriter(shape, flight.key, flight.record)
        self._usage = usage = None if shape.include_usage else UNSET
        self._template: Template | None = None
        self._watches = [Stopwatch() for _ in start.places] if shape.timed else []
        if writer.plain and not shape.continuous_usage and not shape.timed:
            self._template = Template(lambda text: writer.text_chunk(text, usage))
        self._openings = self._writer.opening
        self._position = msgspec.structs.replace(start, places=list(start.places), ended=list(start.ended))
        self._ends: dict[int, Frame] = {}
        self._retry_sent = False

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes; events that are ready together come together. A failure is an event, too."""
        try:
            if opening := [*self._open()]:
                yield self._joined(opening)
            async with aclosing(self._flight.frames()) as batches:
                async for place, frames in batches:
                    joined = [join(frames)] if self._joins else frames
                    if events := [event for frame in joined for event in self._chunk(frame, place)]:
                        yield self._joined(events)
            yield self._joined([*self._last()])
        except OutriderError as error:
            yield self._joined(self._fail(error))
        except Exception:
            _log.exception("a stream failed", request=self._flight.key.request)
            yield self._joined(self._fail(Internal()))

    def _joined(self, events: list[bytes]) -> bytes:
        """``events`` joined; the first event of all holds the time to wait before a client reconnects."""
        if self._retry_sent:
            return b"".join(events)
        self._retry_sent = True
        return b"".join([with_retry(events[0], _RETRY_MS), *events[1:]])

    def _open(self) -> Iterator[bytes]:
        for opening in self._openings[self._start.openings :]:
            usage = self._usage_so_far(self._position.openings)
            self._position.openings += 1
            yield event(msgspec.structs.replace(opening, usage=usage), self._id)

    def _chunk(self, frame: Frame, place: int) -> Iterable[bytes]:
        plain = frame.finish is None and frame.likelihoods is None and frame.drafts is None
        if self._template is None or not plain or frame.first_index < self._start.places[0]:
            return self._parts(frame, place)
        index = self._position.places[0] = frame.first_index + len(frame.tokens)
        text = "".join(frame.texts)
        return [self._template.event(text, f"{self._flight.key.request}:{index}")] if text else []

    def _parts(self, frame: Frame, place: int) -> Iterator[bytes]:
        if frame.finish is not None:
            self._ends[place] = frame
        end = frame.first_index + len(frame.tokens) if frame.finish is Finish.STOP else None
        sent = min(self._start.places[place] - frame.first_index, len(frame.tokens))
        if sent > 0 or self._start.ended[place]:
            head, frame = split(frame, max(sent, 0))
            self._writer.chunk(head, place, self._usage, last=frame.first_index == end)
        if self._start.ended[place] or not (frame.tokens or frame.finish):
            return
        for part in self._writer.parts(frame):
            self._position.places[place] = part.first_index + len(part.tokens)
            self._position.ended[place] = part.finish is not None
            last = self._position.places[place] == end
            if (chunk := self._writer.chunk(part, place, self._usage_so_far(place), last=last)) is not None:
                self._time(chunk, place, part)
                yield event(chunk, self._id)

    def _time(self, chunk: Answer, place: int, frame: Frame) -> None:
        """Adds the times of a choice so far to a ``chunk`` of it, if the client wants them."""
        if self._watches:
            generated = max(0, self._position.places[place])
            if frame.tokens and generated:
                self._watches[place].note()
            prompt = self._flight.record.prompt_tokens[place]
            chunk.timings = self._watches[place].timings(prompt, generated, frame.usage)

    def _usage_so_far(self, place: int) -> UsageBody | UnsetType | None:
        """The usage in a chunk of a choice, which depends on the chunk's last token alone."""
        if not self._shape.continuous_usage:
            return self._usage
        prompt, generated = self._flight.record.prompt_tokens[place], max(0, self._position.places[place])
        return UsageBody(prompt, generated, prompt + generated)

    def _last(self) -> Iterator[bytes]:
        self._position.tail = Tail.USAGE
        if self._usage is None and self._start.tail < Tail.USAGE:
            yield event(self._writer.last([self._ends[place] for place in sorted(self._ends)]), self._id)
        self._position.tail = Tail.DONE
        yield done(self._id)

    def _fail(self, error: OutriderError) -> list[bytes]:
        """The events of an error. Its id is the position before it: a reader that resumes later gets what follows."""
        failure = event(error_answer(error), self._id)
        self._position.tail = Tail.NONE if error.retryable else Tail.DONE
        return [failure, done(self._id)]

    @property
    def _id(self) -> str:
        return self._position.text(self._flight.key.request, len(self._openings))
