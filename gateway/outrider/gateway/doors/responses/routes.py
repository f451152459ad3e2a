"""``/v1/responses``: OpenAI's Responses API."""

from __future__ import annotations

import re
from typing import ClassVar

from outrider.gateway.admission.reservation import Admission
from outrider.gateway.doors.http.messages import EventStream, json_response, read_body, stays, until_gone
from outrider.gateway.doors.responses.body import ResponseBody, read_response
from outrider.gateway.doors.responses.inputs import InputTokens, input_items
from outrider.gateway.doors.responses.items import Message, messages, spoken
from outrider.gateway.doors.responses.json_types import Deleted
from outrider.gateway.doors.responses.narration import Telling
from outrider.gateway.doors.responses.query import Query, read_query
from outrider.gateway.doors.responses.stored_form import (
    ResponseShape,
    decode_shape,
    encode_shape,
    request_of,
    unknown,
)
from outrider.gateway.doors.responses.stream import ResponseStream, collect
from outrider.gateway.doors.schema.headers import routed, timed
from outrider.gateway.doors.schema.ignored import announce, collector
from outrider.gateway.generation.flight import Flight
from outrider.gateway.generation.in_flight import Flights
from outrider.gateway.generation.intake import Generations
from outrider.gateway.generation.record import Key, Record
from outrider.gateway.requests.models import require_allowed
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.streams.replay import replay
from outrider.mesh.errors import Cancelled, InvalidRequest, NotFound, Unavailable
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class UnknownPrevious(InvalidRequest):
    """The response that a conversation is to go on from is not stored."""

    reason: ClassVar[str] = "previous_response_not_found"


class Responses:
    """Any gateway answers for responses that any gateway began."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings) -> None:
        self._generations, self._flights, self._settings = generations, flights, settings
        self.routes = [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route("/v1/responses/{id}", self._read, methods=["GET"]),
            Route("/v1/responses/{id}", self._delete, methods=["DELETE"]),
            Route("/v1/responses/{id}/cancel", self._cancel, methods=["POST"]),
            Route("/v1/responses/{id}/input_items", self._list, methods=["GET"]),
            Route("/v1/responses/input_tokens", self._count, methods=["POST"]),
        ]

    async def _create(self, request: Request) -> Response:
        body, ignored = await self._body(request)
        lingers = stays(request)
        if lingers and not (body.stream and body.store):
            raise InvalidRequest("only a stored stream can go on without its client: stream and store must be true")
        flight, shape = await until_gone(request.receive, self._begin(request, body, ignored, lingers))
        telling = shape.telling(flight.key, flight.record)
        if body.stream:
            return EventStream(ResponseStream(flight, telling).run(), lambda: self._flights.leave(flight))
        if body.background:
            await self._flights.leave(flight)
            return json_response(telling.response())
        try:
            await until_gone(request.receive, collect(flight, telling))
            await flight.recording.kept()
        finally:
            await self._flights.end(flight)
        return json_response(telling.response())

    async def _body(self, request: Request) -> tuple[ResponseBody, tuple[str, ...]]:
        """What is asked for, and the names of parameters without effect."""
        ignored = collector(self._settings)
        body = read_response(await read_body(request, self._settings.max_body_bytes), ignored)
        return body, announce(request, ignored)

    async def _begin(
        self, request: Request, body: ResponseBody, ignored: tuple[str, ...], lingers: bool
    ) -> tuple[Flight, ResponseShape]:
        """Starts to generate; what is to go on by itself is in the ledger then, or `Unavailable`."""
        admission: Admission = request.state.admission
        conversation = await self._conversation(body, admission)
        shape = ResponseShape.of(body, conversation, ignored)
        asked = routed(timed(body, request).generation(conversation), request)
        starting = self._generations.start(
            request.state.request_id,
            asked,
            encode_shape(shape),
            admission,
            resumable=body.store,
            lingers=lingers,
            background=body.background,
        )
        try:
            flight = await starting
        except InvalidRequest as error:
            raise renamed(error) from None
        if body.background:
            await self._require_kept(flight)
        return flight, shape

    async def _require_kept(self, flight: Flight) -> None:
        kept = False
        try:
            kept = await flight.recording.kept()
        finally:
            if not kept:
                await self._flights.end(flight)
        if not kept:
            raise Unavailable("background responses need NATS with JetStream, which does not answer", retry_after=1.0)

    async def _conversation(self, body: ResponseBody, admission: Admission) -> list[Message]:
        """All that was said, but for instructions."""
        said = messages(body.input)
        if body.previous_response_id is None:
            return said
        try:
            key = Key(admission.caller.tenant, request_of(body.previous_response_id))
            record, _, shape = await self._find(key)
        except NotFound as error:
            raise UnknownPrevious(error.message, param="previous_response_id") from None
        before = (await self._heard(key, record, shape))[0]
        if not before.whole:
            raise InvalidRequest(
                "previous_response_id names a response that has no end: wait for it, or name another",
                param="previous_response_id",
            )
        return shape.messages() + spoken(before.response().output) + said

    async def _read(self, request: Request) -> Response:
        """A response as it stands; with ``stream`` its events, and it goes on if it was left."""
        asked, key = read_query(request.query_params), _key(request)
        record, verifiers, shape = await self._find(key)
        admission: Admission = request.state.admission
        require_allowed(record.served.name, admission.caller.may_use)
        if asked.stream:
            return await self._resume(request, key, record, verifiers, shape, asked)
        telling, given_up = await self._heard(key, record, shape)
        if not telling.over and (given_up or not self._flights.runs(key, verifiers[0])):
            if record.background:
                flight = await until_gone(request.receive, self._flights.resume(key, record, verifiers, admission))
                await self._flights.leave(flight)
            else:
                telling.fail(Cancelled("its client has left"))
        return json_response(telling.response())

    async def _resume(
        self, request: Request, key: Key, record: Record, verifiers: list[str], shape: ResponseShape, asked: Query
    ) -> Response:
        resuming = self._flights.resume(key, record, verifiers, request.state.admission)
        flight = await until_gone(request.receive, resuming)
        events = ResponseStream(flight, shape.telling(key, record), asked.starting_after)
        return EventStream(events.run(), lambda: self._flights.leave(flight))

    async def _cancel(self, request: Request) -> Response:
        key = _key(request)
        record, verifiers, shape = await self._find(key)
        if not record.background:
            raise InvalidRequest(
                "only a response with background: true can be cancelled; delete it instead", param="id"
            )
        telling, _ = await self._heard(key, record, shape)
        if not telling.over:
            await self._flights.catalog.stop(key, record, verifiers)
            telling, _ = await self._heard(key, record, shape)
        return json_response(telling.response())

    async def _list(self, request: Request) -> Response:
        """What was said before a response, instructions left out."""
        key = _key(request)
        record, _, shape = await self._find(key)
        require_allowed(record.served.name, request.state.admission.caller.may_use)
        return json_response(input_items(key.request, shape.messages(), request.query_params))

    async def _count(self, request: Request) -> Response:
        """The tokens that a response would be asked with."""
        body, _ = await self._body(request)
        admission: Admission = request.state.admission
        prompt = body.generation(await self._conversation(body, admission)).prompt
        served = await self._generations.find(body.model, admission.caller)
        try:
            ids = await until_gone(request.receive, self._generations.encode(served, prompt, admission.caller))
        except InvalidRequest as error:
            raise renamed(error) from None
        return json_response(InputTokens(len(ids)))

    async def _delete(self, request: Request) -> Response:
        key = _key(request)
        await self._find(key)
        await self._flights.catalog.cancel(key)
        return json_response(Deleted(request.path_params["id"]))

    async def _find(self, key: Key) -> tuple[Record, list[str], ResponseShape]:
        try:
            record, verifiers = await self._flights.catalog.find(key)
        except NotFound:
            raise unknown() from None
        return record, verifiers, decode_shape(record)

    async def _heard(self, key: Key, record: Record, shape: ResponseShape) -> tuple[Telling, bool]:
        """A telling that has heard the log, and whether what there is will not go on by itself."""
        told = replay(await self._flights.catalog.log(key, record))
        telling = shape.telling(key, record)
        for frame in told.frames:
            telling.take(frame)
        if told.failure is not None:
            telling.fail(told.failure)
        return telling, told.given_up


def renamed(error: InvalidRequest) -> InvalidRequest:
    """``error`` by the names that this API has for what the others call by theirs."""
    if error.param == "messages":
        error.param, error.message = "input", re.sub("^messages", "input", error.message)
    elif error.param == "max_tokens":
        error.param = "max_output_tokens"
        error.message = error.message.replace("max_tokens", "max_output_tokens")
    return error


def _key(request: Request) -> Key:
    admission: Admission = request.state.admission
    return Key(admission.caller.tenant, request_of(request.path_params["id"]))
