"""``/v1/streams/<id>``: resumes a stream, or ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.http.sse import EventStream, Position, Tail
from outrider.gateway.api.openai.answers import AnswerWriter, decode_shape
from outrider.gateway.api.openai.events import EventWriter, failure
from outrider.gateway.ledger.record import Key
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.models import require_allowed
from outrider.gateway.settings import GatewaySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class StreamQuery(msgspec.Struct, frozen=True):
    """Parameters of ``GET /v1/streams/{id}``."""

    last_event_id: str | None = None


class StreamRoutes:
    """The routes of ``/v1/streams``; streams may have begun at any gateway."""

    def __init__(self, flights: Flights, settings: GatewaySettings) -> None:
        self._flights, self._settings = flights, settings
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
        obfuscated = shape.obfuscated or admission.caller.obfuscation

        def events(flight: Flight) -> AsyncGenerator[bytes, None]:
            return EventWriter(flight, shape, start, joins=obfuscated).run()

        resuming = self._flights.resume(key, record, verifiers, admission)
        return EventStream(resuming, events, self._flights.leave, failure, self._settings, obfuscated=obfuscated)

    async def _cancel(self, request: Request) -> Response:
        await self._flights.catalog.cancel(_key(request))
        return Response(status_code=204)


def _key(request: Request) -> Key:
    admission: Admission = request.state.admission
    return Key.read(admission.caller.tenant, request.path_params["id"])


def _query(request: Request) -> StreamQuery:
    return msgspec.convert(dict(request.query_params), StreamQuery)
