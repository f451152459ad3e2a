"""``/v1/messages``: Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.anthropic.blocks import Thoughts, blocks, end, usage
from outrider.gateway.api.anthropic.body import Chat, MessagesBody, read_messages
from outrider.gateway.api.anthropic.json_types import Message, TokenCount
from outrider.gateway.api.anthropic.stream import PING, MessageStream, failure, message_id
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.http.sse import EventStream
from outrider.gateway.api.openai.answers import AnswerWriter, Shape, encode_shape
from outrider.gateway.api.openai.json_types import MessageChoice
from outrider.gateway.api.openai.routes import collect
from outrider.gateway.api.schema.headers import with_routing_headers, with_timeout_header
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class MessagesRoutes:
    """The routes of ``/v1/messages``. Its streams cannot be resumed: the API has no way to ask for that."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings, seal: Seal) -> None:
        self._generations, self._flights, self._settings, self._seal = generations, flights, settings, seal
        self.routes = [
            Route("/v1/messages", self._create, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
        ]

    async def _create(self, request: Request) -> Response:
        body, chat, ignored = await self._read(request)
        shape, thoughts = chat.body.shape(ignored), self._thoughts(body, request)
        starting = self._begin(request, chat, shape)
        if not body.stream:
            return json_response(await until_disconnected(request.receive, self._whole(starting, shape, thoughts)))
        return EventStream(
            starting,
            lambda flight: MessageStream(flight, shape, thoughts).run(),
            self._flights.leave,
            failure,
            self._settings,
            alive=PING,
            obfuscated=request.state.admission.caller.obfuscation,
        )

    async def _count(self, request: Request) -> Response:
        """The number of tokens of the prompt that a message would have."""
        body, chat, _ = await self._read(request)
        caller = request.state.admission.caller
        try:
            prompt = chat.body.generation().prompt
            served = await self._generations.find(body.model, caller)
            ids = await until_disconnected(request.receive, self._generations.encode(served, prompt, caller))
        except InvalidRequest as error:
            raise chat.renamed(error) from None
        return json_response(TokenCount(len(ids)))

    async def _read(self, request: Request) -> tuple[MessagesBody, Chat, tuple[str, ...]]:
        """The body, its chat, and the names of its parameters without effect."""
        request.state.headers["request-id"] = request.state.request_id
        ignored = collector(self._settings)
        body = read_messages(await read_body(request, self._settings.max_body_bytes), ignored)
        chat = body.chat(self._seal, request.state.admission.caller.tenant, ignored)
        chat.note_unenforced(ignored)
        return body, chat, announce(request, ignored)

    async def _begin(self, request: Request, chat: Chat, shape: Shape) -> Flight:
        admission: Admission = request.state.admission
        try:
            generation = with_routing_headers(with_timeout_header(chat.body, request).generation(), request)
            return await self._generations.start(
                request.state.request_id, generation, encode_shape(shape), admission, resumable=False, lingers=False
            )
        except InvalidRequest as error:
            raise chat.renamed(error) from None

    def _thoughts(self, body: MessagesBody, request: Request) -> Thoughts:
        tenant = request.state.admission.caller.tenant
        return Thoughts(lambda thought: self._seal.close(thought, tenant), omitted=body.omits_thoughts)

    async def _whole(self, starting: Awaitable[Flight], shape: Shape, thoughts: Thoughts) -> Message:
        flight = await starting
        try:
            (frame,) = await collect(flight)
        finally:
            await self._flights.end(flight)
        (choice,) = AnswerWriter(shape, flight.key, flight.record).whole([frame]).choices
        assert isinstance(choice, MessageChoice)
        return Message(
            id=message_id(flight.key.request),
            model=flight.record.served.name,
            content=blocks(choice.message, thoughts, choice.message.reasoning_content or ""),
            usage=usage(frame),
            **msgspec.structs.asdict(end(choice.finish_reason, frame)),
        )
