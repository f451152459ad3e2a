"""The stream of a response's events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from outrider.gateway.api.http.sse import typed_event
from outrider.gateway.api.responses.builder import ResponseBuilder
from outrider.gateway.api.responses.events import Event
from outrider.gateway.request.flight import Flight
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest, OutriderError
from outrider.mesh.telemetry import get_logger

_IN_FRAMES = (Cancelled, Internal, InvalidRequest)
"""Failures that frames report; all others are temporary."""

_log = get_logger("responses")


def failure(builder: ResponseBuilder, error: OutriderError) -> bytes:
    """The events of a response that could not begin."""
    return b"".join(map(typed_event, builder.interrupt(error)))


class ResponseStream:
    """Writes the events of a flight that follow event number ``after``."""

    def __init__(self, flight: Flight, builder: ResponseBuilder, after: int = -1) -> None:
        self._flight, self._builder, self._after = flight, builder, after

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes; events that are ready together come together. A failure is an event, too."""
        async with aclosing(self._all()) as batches:
            async for events in batches:
                if data := b"".join(typed_event(event) for event in events if event.sequence_number > self._after):
                    yield data

    async def _all(self) -> AsyncGenerator[list[Event], None]:
        try:
            yield self._builder.begin()
            async with aclosing(self._flight.frames()) as batches:
                async for _, frames in batches:
                    events: list[Event] = []
                    try:
                        for frame in frames:
                            events += self._builder.take(frame)
                    finally:
                        yield events
        except OutriderError as error:
            yield self._fail(error)
        except Exception:
            _log.exception("a response failed", request=self._flight.key.request)
            yield self._interrupt(Internal())

    def _fail(self, error: OutriderError) -> list[Event]:
        permanent = error is self._flight.streams[0].failed and isinstance(error, _IN_FRAMES)
        return self._builder.fail(error) if permanent else self._interrupt(error)

    def _interrupt(self, error: OutriderError) -> list[Event]:
        """The events of a temporary failure; they are sent even to readers that have the event with their number."""
        self._after = -1
        return self._builder.interrupt(error)


async def collect(flight: Flight, builder: ResponseBuilder) -> None:
    """Adds all frames of ``flight`` to ``builder``; a cancelled response counts as failed."""
    try:
        async with aclosing(flight.frames()) as batches:
            async for _, frames in batches:
                for frame in frames:
                    builder.take(frame)
    except Cancelled as error:
        builder.fail(error)
