"""``/v1/streams/<id>``: resumes a stream, or ends it."""

from __future__ import annotations

import msgspec
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.http.messages import EventStream, until_disconnected
from outrider.gateway.api.http.sse import Position, Tail
from outrider.gateway.api.openai.answers import AnswerWriter, decode_shape
from outrider.gateway.api.openai.events import EventWriter
from outrider.gateway.ledger.record import Key
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.models import require_allowed
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class StreamQuery(msgspec.Struct, frozen=True):
    """Parameters of ``GET /v1/streams/{id}``."""

    last_event_id: str | None = None


class StreamRoutes:
    """The routes of ``/v1/streams``; streams may have begun at any gateway."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self.routes = [
            Route("/v1/streams/{id}", self._resume, methods=["GET"]),
            Route("/v1/streams/{id}", self._cancel, methods=["DELETE"]),
        ]

    async def _resume(self, request: Request) -> Response:
        """The events after the client's last one; 204, which ends an EventSource, if none follows."""
        key, last = _key(request), request.headers.get("last-event-id") or _query(request).last_event_id
        record, verifiers = await self._flights.catalog.find(key)
        admission: Admission = request.state.admission
        require_allowed(record.served.name, admission.caller.may_use)
        shape = decode_shape(record.shape)
        writer, start = AnswerWriter(shape, key, record), Position.start(record.first_indices)
        if last:
            start = start.read(last, key.request, len(writer.opening))
        if start.tail is Tail.DONE:
            return Response(status_code=204)
        flight = await until_disconnected(request.receive, self._flights.resume(key, record, verifiers, admission))
        events = EventWriter(flight, shape, start)
        return EventStream(events.run(), lambda: self._flights.leave(flight))

    async def _cancel(self, request: Request) -> Response:
        await self._flights.catalog.cancel(_key(request))
        return Response(status_code=204)


def _key(request: Request) -> Key:
    admission: Admission = request.state.admission
    return Key.read(admission.caller.tenant, request.path_params["id"])


def _query(request: Request) -> StreamQuery:
    return msgspec.convert(dict(request.query_params), StreamQuery)
