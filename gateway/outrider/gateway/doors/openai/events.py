"""A stream's events: chunks of its frames, each with the position behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.doors.http.position import Position, Tail
from outrider.gateway.doors.http.sse import done, event, with_retry
from outrider.gateway.doors.openai.json_types import UsageBody
from outrider.gateway.doors.openai.stored_form import Shape
from outrider.gateway.errors import error_answer
from outrider.gateway.generation.flight import Flight
from outrider.gateway.streams.reassembly import split
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame

_RETRY_MS = 1000

_log = get_logger("openai")


class Events:
    """Writes a flight's events from behind ``had`` on: what comes before is read and not told.

    A chunk holds one frame, or a part of one that is always the same, so that who comes back gets the same chunks as
    who stayed.
    """

    def __init__(self, flight: Flight, shape: Shape, had: Position) -> None:
        self._flight, self._shape, self._had = flight, shape, had
        self._writer = shape.writer(flight.key, flight.record)
        self._usage = None if shape.include_usage else UNSET
        self._openings = self._writer.opening
        self._at = msgspec.structs.replace(had, places=list(had.places), ended=list(had.ended))
        self._ends: dict[int, Frame] = {}
        self._told = False

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events, those together that are ready together; a failure is one of them."""
        try:
            if opening := [*self._open()]:
                yield self._joined(opening)
            async with aclosing(self._flight.frames()) as batches:
                async for place, frames in batches:
                    if events := [event for frame in frames for event in self._chunk(frame, place)]:
                        yield self._joined(events)
            yield self._joined([*self._last()])
        except OutriderError as error:
            yield self._joined(self._fail(error))
        except Exception:
            _log.exception("a stream failed", request=self._flight.key.request)
            yield self._joined(self._fail(Internal()))

    def _joined(self, events: list[bytes]) -> bytes:
        """``events`` as they are sent; the first of all tells how long to wait before one comes back."""
        if self._told:
            return b"".join(events)
        self._told = True
        return b"".join([with_retry(events[0], _RETRY_MS), *events[1:]])

    def _open(self) -> Iterator[bytes]:
        for opening in self._openings[self._had.openings :]:
            usage = self._so_far(self._at.openings)
            self._at.openings += 1
            yield event(msgspec.structs.replace(opening, usage=usage), self._id)

    def _chunk(self, frame: Frame, place: int) -> Iterator[bytes]:
        if frame.finish is not None:
            self._ends[place] = frame
        end = frame.first_index + len(frame.tokens) if frame.finish is Finish.STOP else None
        known = min(self._had.places[place] - frame.first_index, len(frame.tokens))
        if known > 0 or self._had.ended[place]:
            head, frame = split(frame, max(known, 0))
            self._writer.chunk(head, place, self._usage, last=frame.first_index == end)
        if self._had.ended[place] or not (frame.tokens or frame.finish):
            return
        for part in self._writer.parts(frame):
            self._at.places[place] = part.first_index + len(part.tokens)
            self._at.ended[place] = part.finish is not None
            last = self._at.places[place] == end
            if (chunk := self._writer.chunk(part, place, self._so_far(place), last=last)) is not None:
                yield event(chunk, self._id)

    def _so_far(self, place: int) -> UsageBody | UnsetType | None:
        """What a chunk tells of the usage of its choice, which depends on nothing but where the chunk ends."""
        if not self._shape.continuous_usage:
            return self._usage
        prompt, generated = self._flight.record.prompt_tokens[place], max(0, self._at.places[place])
        return UsageBody(prompt, generated, prompt + generated)

    def _last(self) -> Iterator[bytes]:
        self._at.tail = Tail.USAGE
        if self._usage is None and self._had.tail < Tail.USAGE:
            yield event(self._writer.last([self._ends[place] for place in sorted(self._ends)]), self._id)
        self._at.tail = Tail.DONE
        yield done(self._id)

    def _fail(self, error: OutriderError) -> list[bytes]:
        """An error is told at the position before it: who comes back when it has passed gets what was to follow."""
        told = event(error_answer(error), self._id)
        self._at.tail = Tail.NONE if error.retryable else Tail.DONE
        return [told, done(self._id)]

    @property
    def _id(self) -> str:
        return self._at.text(self._flight.key.request, len(self._openings))
