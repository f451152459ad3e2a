"""OpenAI's endpoints."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType
from outrider.gateway.api.http.messages import (
    EventStream,
    json_response,
    lingers_after_disconnect,
    read_body,
    until_disconnected,
)
from outrider.gateway.api.http.sse import Position
from outrider.gateway.api.openai.answers import AnswerWriter, Shape, encode_shape
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody, read_chat, read_completion
from outrider.gateway.api.openai.events import EventWriter
from outrider.gateway.api.openai.json_types import Answer
from outrider.gateway.api.schema.headers import note_trouble, with_routing_headers, with_timeout_header
from outrider.gateway.api.schema.ignored import announce
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.request.models import ServedModel
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.reassembly import join
from outrider.mesh.errors import InvalidRequest
from outrider.wire.frames import Frame
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class ModelFacts(msgspec.Struct):
    """``outrider`` of a model: the ids of the tokens that end an answer."""

    end_token_ids: list[int]


class ModelBody(msgspec.Struct):
    """A model in the list; ``max_model_len``, which vLLM has too, is the number of tokens that its context holds.

    Neither the context nor ``outrider`` of a cold model is known before a verifier serves the model.
    """

    id: str
    created: int
    max_model_len: int | UnsetType = UNSET
    object: str = "model"
    owned_by: str = "outrider"
    outrider: ModelFacts | UnsetType = UNSET


class ModelList(msgspec.Struct):
    """All models."""

    data: list[ModelBody]
    object: str = "list"


class OpenAiRoutes:
    """``/v1/completions``, ``/v1/chat/completions`` and ``/v1/models``."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings) -> None:
        self._generations, self._flights, self._settings = generations, flights, settings
        self._created = int(time.time())
        self.routes = [
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._model, methods=["GET"]),
        ]

    async def _completions(self, request: Request) -> Response:
        return await self._generate(request, read_completion)

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, read_chat)

    async def _models(self, request: Request) -> Response:
        may_use = request.state.admission.caller.may_use
        models = self._generations.models
        served = {model.name: model for model in models.all()}
        return json_response(ModelList([self._body(name, served.get(name)) for name in models.names(may_use)]))

    async def _model(self, request: Request) -> Response:
        may_use = request.state.admission.caller.may_use
        served = self._generations.models.find(request.path_params["model"], may_use)
        return json_response(self._body(served.name, served))

    def _body(self, name: str, served: ServedModel | None) -> ModelBody:
        if served is None:
            return ModelBody(name, self._created)
        facts = ModelFacts(self._generations.models.end_token_ids(served))
        return ModelBody(name, self._created, served.context_length, outrider=facts)

    async def _generate(
        self, request: Request, read: Callable[[bytes, list[str] | None], CompletionBody | ChatBody]
    ) -> Response:
        ignored: list[str] | None = None if self._settings.parameters == "strict" else []
        body = read(await read_body(request, self._settings.max_body_bytes), ignored)
        shape = body.shape(announce(request, ignored) if ignored else ())
        if self._settings.speculation_metrics:
            shape = msgspec.structs.replace(shape, shows_metrics=True)
        lingers, admission = False, request.state.admission
        if request.state.has_parameters:
            generation = with_routing_headers(with_timeout_header(body, request).generation(), request)
            lingers = lingers_after_disconnect(request)
        else:
            generation = body.generation()
        if lingers and not body.stream:
            raise InvalidRequest("only a stream can go on without its client: stream must be true", param="stream")
        starting = self._generations.start(
            request.state.request_id, generation, encode_shape(shape), admission, resumable=body.stream, lingers=lingers
        )
        if not body.stream:
            return json_response(await until_disconnected(request.receive, self._whole(starting, shape)))
        flight = await until_disconnected(request.receive, starting)
        if (trouble := self._flights.catalog.ledger.trouble) is not None:
            note_trouble(request, trouble)
        events = EventWriter(flight, shape, Position.start(flight.record.first_indices))
        return EventStream(events.run(), lambda: self._flights.leave(flight))

    async def _whole(self, starting: Awaitable[Flight], shape: Shape) -> Answer:
        flight = await starting
        try:
            frames = await _collect(flight)
        finally:
            await self._flights.end(flight)
        return AnswerWriter(shape, flight.key, flight.record).whole(frames)


async def _collect(flight: Flight) -> list[Frame]:
    frames_by_choice: list[list[Frame]] = [[] for _ in flight.streams]
    async with aclosing(flight.frames()) as batches:
        async for place, frames in batches:
            frames_by_choice[place] += frames
    return [join(frames) for frames in frames_by_choice]
