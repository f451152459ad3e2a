"""``/v1/responses``: OpenAI's Responses API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import ClassVar

from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.http.messages import (
    json_response,
    lingers_after_disconnect,
    read_body,
    until_disconnected,
)
from outrider.gateway.api.http.sse import EventStream
from outrider.gateway.api.responses.body import ResponseBody, read_response
from outrider.gateway.api.responses.builder import ResponseBuilder
from outrider.gateway.api.responses.inputs import InputTokens, input_items
from outrider.gateway.api.responses.items import Message, Thoughts, answer_messages, messages
from outrider.gateway.api.responses.json_types import Deleted
from outrider.gateway.api.responses.query import ResponseQuery, read_query
from outrider.gateway.api.responses.stored_form import (
    ResponseShape,
    decode_shape,
    encode_shape,
    request_id_of,
    unbegun_response,
    unknown_response,
)
from outrider.gateway.api.responses.stream import ResponseStream, collect, failure
from outrider.gateway.api.responses.truncation import truncated
from outrider.gateway.api.schema.headers import note_trouble, with_routing_headers, with_timeout_header
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations, longest_answer
from outrider.gateway.request.models import require_allowed
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.replay import replay
from outrider.mesh.errors import Cancelled, ContextExceeded, InvalidRequest, NotFound, Unavailable
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class UnknownPrevious(InvalidRequest):
    """The previous response of a conversation is not stored."""

    reason: ClassVar[str] = "previous_response_not_found"


class ResponseRoutes:
    """The routes of ``/v1/responses``; responses may have begun at any gateway."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings, seal: Seal) -> None:
        self._generations, self._flights, self._settings, self._seal = generations, flights, settings, seal
        self.routes = [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route("/v1/responses/{id}", self._read, methods=["GET"]),
            Route("/v1/responses/{id}", self._delete, methods=["DELETE"]),
            Route("/v1/responses/{id}/cancel", self._cancel, methods=["POST"]),
            Route("/v1/responses/{id}/input_items", self._list, methods=["GET"]),
            Route("/v1/responses/input_tokens", self._count, methods=["POST"]),
            Route("/v1/responses/compact", _refuse_to_compact, methods=["POST"]),
        ]

    async def _create(self, request: Request) -> Response:
        body, said, ignored = await self._body(request)
        lingers = lingers_after_disconnect(request)
        if lingers and not (body.stream and body.store):
            raise InvalidRequest("only a stored stream can go on without its client: stream and store must be true")
        starting = self._begin(request, body, said, ignored, lingers)
        if body.stream:
            unbegun = partial(unbegun_response, body, request.state.request_id)
            return self._streamed(request, starting, unbegun, obfuscated=body.obfuscated)
        flight, shape = await until_disconnected(request.receive, starting)
        builder = shape.builder(flight.key, flight.record, self._seal)
        if body.background:
            await self._flights.leave(flight)
            return json_response(builder.response())
        try:
            await until_disconnected(request.receive, collect(flight, builder))
            await flight.recording.wait_recorded()
        finally:
            await self._flights.end(flight)
        return json_response(builder.response())

    async def _body(self, request: Request) -> tuple[ResponseBody, list[Message], tuple[str, ...]]:
        """The body, its input, and the names of its parameters without effect."""
        ignored = collector(self._settings)
        body = read_response(await read_body(request, self._settings.max_body_bytes), ignored)
        said = messages(body.input, Thoughts(self._seal, request.state.admission.caller.tenant, ignored))
        return body, said, announce(request, ignored)

    async def _begin(
        self, request: Request, body: ResponseBody, said: list[Message], ignored: tuple[str, ...], lingers: bool
    ) -> tuple[Flight, ResponseShape]:
        """Starts a generation. Raises `Unavailable` if the ledger does not take the record of a background response."""
        admission: Admission = request.state.admission
        conversation = await self._conversation(body, said, admission)
        kept = await self._fitting(body, conversation, admission.caller)
        if dropped := len(conversation) - len(kept):
            ignored = announce(request, [*ignored, f"input/{dropped}_oldest_of_{len(conversation)}"])
        shape = ResponseShape.of(body, conversation, ignored)
        generation = with_routing_headers(with_timeout_header(body, request).generation(kept), request)
        starting = self._generations.start(
            request.state.request_id,
            generation,
            encode_shape(shape),
            admission,
            resumable=body.store,
            lingers=lingers,
            background=body.background,
        )
        try:
            flight = await starting
        except InvalidRequest as error:
            raise _with_response_names(error) from None
        if body.background:
            await self._require_recorded(flight)
        return flight, shape

    async def _require_recorded(self, flight: Flight) -> None:
        recorded = False
        try:
            recorded = await flight.recording.wait_recorded()
        finally:
            if not recorded:
                await self._flights.end(flight)
        if not recorded:
            raise Unavailable("background responses need NATS with JetStream, which does not answer", retry_after=1.0)

    async def _conversation(self, body: ResponseBody, said: list[Message], admission: Admission) -> list[Message]:
        """All messages before the response, without instructions; ``said`` is its input."""
        if body.previous_response_id is None:
            return said
        try:
            key = Key(admission.caller.tenant, request_id_of(body.previous_response_id))
            record, _, shape = await self._find(key)
        except NotFound as error:
            raise UnknownPrevious(error.message, param="previous_response_id") from None
        previous = (await self._replayed(key, record, shape))[0]
        if not previous.whole:
            raise InvalidRequest(
                "previous_response_id names a response that has no end: wait for it, or name another",
                param="previous_response_id",
            )
        return shape.messages() + answer_messages(previous.response().output) + said

    async def _fitting(self, body: ResponseBody, conversation: list[Message], caller: Caller) -> list[Message]:
        """``conversation``, without its oldest messages where it does not fit and is to be truncated."""
        if body.truncation == "disabled":
            return conversation
        served = await self._generations.find(body.model, caller)
        room = served.context_length // 8 if body.max_output_tokens is None else body.max_output_tokens

        async def fits(messages: list[Message]) -> bool:
            generation = body.generation(messages)
            try:
                ids = await self._generations.encode(served, generation.prompt, caller)
                return longest_answer(served, generation, len(ids), caller) >= min(room, served.context_length // 2)
            except ContextExceeded:
                return False

        return await truncated(conversation, fits)

    async def _read(self, request: Request) -> Response:
        """A response so far, or with ``stream`` its events; a background response that no gateway reads is resumed."""
        query, key = read_query(request.query_params), _key(request)
        record, verifiers, shape = await self._find(key)
        admission: Admission = request.state.admission
        require_allowed(record.served.name, admission.caller.may_use)
        if query.stream:
            return self._resume(request, key, record, verifiers, shape, query)
        builder, given_up = await self._replayed(key, record, shape)
        if not builder.over and (given_up or not self._flights.runs(key, verifiers[0])):
            if record.background:
                flight = await until_disconnected(
                    request.receive, self._flights.resume(key, record, verifiers, admission)
                )
                await self._flights.leave(flight)
            else:
                builder.fail(Cancelled("its client has left"))
        return json_response(builder.response())

    def _resume(
        self,
        request: Request,
        key: Key,
        record: Record,
        verifiers: list[str],
        shape: ResponseShape,
        query: ResponseQuery,
    ) -> Response:
        async def resuming() -> tuple[Flight, ResponseShape]:
            return await self._flights.resume(key, record, verifiers, request.state.admission), shape

        obfuscated = shape.obfuscated or query.include_obfuscation
        unbegun = partial(shape.builder, key, record, self._seal)
        return self._streamed(request, resuming(), unbegun, query.starting_after, obfuscated=obfuscated)

    def _streamed(
        self,
        request: Request,
        starting: Awaitable[tuple[Flight, ResponseShape]],
        unbegun: Callable[[], ResponseBuilder],
        after: int = -1,
        *,
        obfuscated: bool,
    ) -> Response:
        def events(begun: tuple[Flight, ResponseShape]) -> AsyncGenerator[bytes, None]:
            flight, shape = begun
            return ResponseStream(flight, shape.builder(flight.key, flight.record, self._seal), after).run()

        return EventStream(
            starting,
            events,
            lambda begun: self._flights.leave(begun[0]),
            lambda error: failure(unbegun(), error),
            self._settings,
            before=lambda: note_trouble(request, self._flights.catalog.trouble),
            obfuscated=obfuscated or request.state.admission.caller.obfuscation,
        )

    async def _cancel(self, request: Request) -> Response:
        key = _key(request)
        record, verifiers, shape = await self._find(key)
        if not record.background:
            raise InvalidRequest(
                "only a response with background: true can be cancelled; delete it instead", param="id"
            )
        builder, _ = await self._replayed(key, record, shape)
        if not builder.over:
            await self._flights.catalog.stop(key, record, verifiers)
            builder, _ = await self._replayed(key, record, shape)
        return json_response(builder.response())

    async def _list(self, request: Request) -> Response:
        """The messages before a response, without instructions."""
        key = _key(request)
        record, _, shape = await self._find(key)
        require_allowed(record.served.name, request.state.admission.caller.may_use)
        return json_response(input_items(key.request, shape.messages(), request.query_params))

    async def _count(self, request: Request) -> Response:
        """The number of tokens of the prompt that a response would have."""
        body, said, _ = await self._body(request)
        admission: Admission = request.state.admission
        kept = await self._fitting(body, await self._conversation(body, said, admission), admission.caller)
        prompt = body.generation(kept).prompt
        served = await self._generations.find(body.model, admission.caller)
        try:
            ids = await until_disconnected(request.receive, self._generations.encode(served, prompt, admission.caller))
        except InvalidRequest as error:
            raise _with_response_names(error) from None
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
            raise unknown_response() from None
        return record, verifiers, decode_shape(record)

    async def _replayed(self, key: Key, record: Record, shape: ResponseShape) -> tuple[ResponseBuilder, bool]:
        """A builder with all logged frames, and whether nothing follows them unless a gateway resumes the response."""
        job = record.jobs(key.request, Caller(tenant=key.tenant))[0]
        log = await self._flights.filtering.replay(replay(await self._flights.catalog.frames(job)), job)
        builder = shape.builder(key, record, self._seal)
        for frame in log.frames:
            builder.take(frame)
        if log.failure is not None:
            builder.fail(log.failure)
        return builder, log.given_up


def _with_response_names(error: InvalidRequest) -> InvalidRequest:
    """``error`` with the parameter names of the Responses API."""
    if error.param == "messages":
        error.param, error.message = "input", re.sub("^messages", "input", error.message)
    elif error.param == "max_tokens":
        error.param = "max_output_tokens"
        error.message = error.message.replace("max_tokens", "max_output_tokens")
    return error


def _key(request: Request) -> Key:
    admission: Admission = request.state.admission
    return Key(admission.caller.tenant, request_id_of(request.path_params["id"]))


async def _refuse_to_compact(request: Request) -> Response:
    raise NotFound('conversations are not compacted here: ask for a summary, or set truncation to "auto"')
