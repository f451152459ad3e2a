"""The events of a response while it is generated, or generated before."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from outrider.gateway.doors.http.sse import typed
from outrider.gateway.doors.responses.events import Event
from outrider.gateway.doors.responses.narration import Telling
from outrider.gateway.generation.flight import Flight
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest, OutriderError
from outrider.mesh.telemetry import get_logger

_IN_FRAMES = (Cancelled, Internal, InvalidRequest)
"""Failures that frames tell of: all others may have passed when a reader comes back."""

_log = get_logger("responses")


class ResponseStream:
    """Writes a flight's events behind the one of number ``after``."""

    def __init__(self, flight: Flight, telling: Telling, after: int = -1) -> None:
        self._flight, self._telling, self._after = flight, telling, after

    async def run(self) -> AsyncGenerator[bytes, None]:
        """The events, those together that are ready together; a failure is one of them."""
        async with aclosing(self._all()) as batches:
            async for events in batches:
                if data := b"".join(typed(event) for event in events if event.sequence_number > self._after):
                    yield data

    async def _all(self) -> AsyncGenerator[list[Event], None]:
        yield self._telling.begin()
        try:
            async with aclosing(self._flight.frames()) as batches:
                async for _, frames in batches:
                    yield [event for frame in frames for event in self._telling.take(frame)]
        except OutriderError as error:
            yield self._fail(error)
        except Exception:
            _log.exception("a response failed", request=self._flight.key.request)
            yield self._broken(Internal())

    def _fail(self, error: OutriderError) -> list[Event]:
        told = error is self._flight.streams[0].failed and isinstance(error, _IN_FRAMES)
        return self._telling.fail(error) if told else self._broken(error)

    def _broken(self, error: OutriderError) -> list[Event]:
        """What breaks off is told even to those who have had the event before it."""
        self._after = -1
        return [self._telling.broken(error)]


async def collect(flight: Flight, telling: Telling) -> None:
    """Has ``telling`` hear of all frames; a response that somebody cancelled is one that has failed."""
    try:
        async with aclosing(flight.frames()) as batches:
            async for _, frames in batches:
                for frame in frames:
                    telling.take(frame)
    except Cancelled as error:
        telling.fail(error)
