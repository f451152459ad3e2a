"""``/api/...``: Ollama's API."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from importlib.metadata import version
from typing import TypeVar

import msgspec
from outrider.gateway.api.embeddings.bodies import EmbeddingBody
from outrider.gateway.api.embeddings.embedder import Embedder, shortened
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.http.sse import EventStream
from outrider.gateway.api.ollama.bodies import (
    CHAT,
    EMBED,
    GENERATE,
    ChatRequest,
    EmbedRequest,
    GenerateRequest,
    GenerationBody,
    OldEmbedRequest,
    ShowRequest,
    named,
)
from outrider.gateway.api.ollama.json_types import (
    EmbedAnswer,
    OldEmbedAnswer,
    Running,
    RunningModels,
    Shown,
    Tag,
    Tags,
)
from outrider.gateway.api.ollama.lines import Line, LineWriter, failure, lifeline, loaded, now
from outrider.gateway.api.openai.answers import Shape, encode_shape
from outrider.gateway.api.openai.routes import collect
from outrider.gateway.api.own.readiness import Version
from outrider.gateway.api.schema.headers import with_routing_headers, with_timeout_header
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.json_schemas import note_unenforced
from outrider.gateway.api.schema.parameters import UnsupportedParameters, read
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.request.models import ServedModel
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILLING = "{{ .Prompt }}{{ .Suffix }}"
"""A template in which clients see that the model fills in between texts."""
T = TypeVar("T", bound=msgspec.Struct)


class LineStream(EventStream[Flight]):
    """Lines of JSON."""

    media_type = "application/x-ndjson"
    comments = False


class OllamaRoutes:
    """The routes that generate, embed and list. Models are neither pulled nor made. Streams cannot be resumed."""

    def __init__(
        self, generations: Generations, flights: Flights, settings: GatewaySettings, embedder: Embedder
    ) -> None:
        self._generations, self._flights, self._settings = generations, flights, settings
        self._embedder = embedder
        self.routes = [
            Route("/api/chat", self._chat, methods=["POST"]),
            Route("/api/generate", self._generate, methods=["POST"]),
            Route("/api/embed", self._embed, methods=["POST"]),
            Route("/api/embeddings", self._embed_one, methods=["POST"]),
            Route("/api/show", self._show, methods=["POST"]),
            Route("/api/tags", self._tags),
            Route("/api/ps", self._running),
            Route("/api/version", self._version),
        ]

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, await self._read(request, ChatRequest, CHAT), chats=True)

    async def _generate(self, request: Request) -> Response:
        return await self._answer(request, await self._read(request, GenerateRequest, GENERATE), chats=False)

    async def _answer(self, request: Request, body: GenerationBody, *, chats: bool) -> Response:
        began, ignored = time.monotonic(), request.state.ignored
        if body.empty:
            served = await self._generations.find(named(body.model), request.state.admission.caller)
            return json_response(loaded(served.name, chats=chats))
        if body.stream and request.state.admission.caller.obfuscation:
            raise InvalidRequest("stream must be false: lines of JSON are not obfuscated", param="stream")
        asked = body.openai(ignored)
        note_unenforced([*asked.unenforced], ignored)
        shape = asked.shape(announce(request, ignored))
        generation = with_routing_headers(with_timeout_header(asked, request).generation(), request)
        starting = self._generations.start(
            request.state.request_id,
            generation,
            encode_shape(shape),
            request.state.admission,
            resumable=False,
            lingers=False,
        )
        if not body.stream:
            whole = self._whole(starting, shape, chats=chats, began=began)
            return json_response(await until_disconnected(request.receive, whole))
        return LineStream(
            starting,
            lambda flight: LineWriter(flight, shape, chats=chats, began=began).run(),
            self._flights.leave,
            failure,
            self._settings,
            alive=lifeline(named(body.model), chats=chats),
        )

    async def _whole(self, starting: Awaitable[Flight], shape: Shape, *, chats: bool, began: float) -> Line:
        flight = await starting
        try:
            (frame,) = await collect(flight)
        finally:
            await self._flights.end(flight)
        return LineWriter(flight, shape, chats=chats, began=began).whole(frame)

    async def _embed(self, request: Request) -> Response:
        began, body = time.monotonic(), await self._read(request, EmbedRequest, EMBED)
        announce(request, request.state.ignored)
        texts = EmbeddingBody(model=named(body.model), input=body.input)
        made = await until_disconnected(request.receive, self._embedder.embed(request, texts))
        vectors = [shortened(vector, body.dimensions or None) for vector in made.vectors]
        nanoseconds = round((time.monotonic() - began) * 1e9)
        return json_response(EmbedAnswer(made.model, vectors, nanoseconds, 0, made.tokens))

    async def _embed_one(self, request: Request) -> Response:
        body = await self._read(request, OldEmbedRequest, EMBED)
        announce(request, request.state.ignored)
        texts = EmbeddingBody(model=named(body.model), input=body.prompt)
        made = await until_disconnected(request.receive, self._embedder.embed(request, texts))
        return json_response(OldEmbedAnswer(made.vectors[0]))

    async def _show(self, request: Request) -> Response:
        body = await self._read(request, ShowRequest, UnsupportedParameters())
        if not (name := body.model or body.name):
            raise InvalidRequest("model is required: the name of a model", param="model")
        served = await self._generations.find(named(name), request.state.admission.caller)
        can = ["completion", "tools", "embedding", *(["thinking"] if served.thoughts is not None else [])]
        fills = served.infill_ends is not None
        info: dict[str, str | int] = {
            "general.architecture": "outrider",
            "general.basename": served.name,
            "outrider.context_length": served.context_length,
        }
        shown = Shown(info, [*can, *(["insert"] if fills else [])], now(), template=_FILLING if fills else "")
        return json_response(shown)

    async def _tags(self, request: Request) -> Response:
        return json_response(Tags([_tag(served) for served in self._visible(request)]))

    async def _running(self, request: Request) -> Response:
        models = [
            Running(**msgspec.structs.asdict(_tag(served)), context_length=served.context_length)
            for served in self._visible(request)
        ]
        return json_response(RunningModels(models))

    async def _version(self, request: Request) -> Response:
        return json_response(Version(version("outrider")))

    def _visible(self, request: Request) -> list[ServedModel]:
        may_use = request.state.admission.caller.may_use
        return [served for served in self._generations.models.all() if may_use(served.name)]

    async def _read(self, request: Request, kind: type[T], unsupported: UnsupportedParameters) -> T:
        request.state.ignored = collector(self._settings)
        raw = await read_body(request, self._settings.max_body_bytes)
        return read(raw, kind, unsupported, request.state.ignored)


def _tag(served: ServedModel) -> Tag:
    return Tag(served.name, served.name, now(), served.vocabulary)
