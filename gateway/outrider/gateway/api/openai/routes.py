"""OpenAI's endpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import msgspec
from outrider.gateway.api.http.messages import (
    json_response,
    lingers_after_disconnect,
    read_body,
    until_disconnected,
)
from outrider.gateway.api.http.sse import EventStream, Position
from outrider.gateway.api.openai.answers import AnswerWriter, Shape, encode_shape
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody, read_chat, read_completion
from outrider.gateway.api.openai.events import EventWriter, failure
from outrider.gateway.api.openai.json_types import Answer
from outrider.gateway.api.openai.timings import Stopwatch
from outrider.gateway.api.schema.headers import note_trouble, with_routing_headers, with_timeout_header
from outrider.gateway.api.schema.ignored import announce
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.reassembly import join
from outrider.mesh.errors import InvalidRequest
from outrider.wire.frames import Frame
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class OpenAiRoutes:
    """``/v1/completions`` and ``/v1/chat/completions``."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings) -> None:
        self._generations, self._flights, self._settings = generations, flights, settings
        self.routes = [
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]

    async def _completions(self, request: Request) -> Response:
        return await self._generate(request, read_completion)

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, read_chat)

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
        obfuscated = shape.obfuscated or admission.caller.obfuscation

        def events(flight: Flight) -> AsyncGenerator[bytes, None]:
            return EventWriter(flight, shape, Position.start(flight.record.first_indices), joins=obfuscated).run()

        def before() -> None:
            if (trouble := self._flights.catalog.ledger.trouble) is not None:
                note_trouble(request, trouble)

        return EventStream(
            starting,
            events,
            self._flights.leave,
            failure,
            self._settings,
            before=before,
            obfuscated=obfuscated,
        )

    async def _whole(self, starting: Awaitable[Flight], shape: Shape) -> Answer:
        watch, flight = Stopwatch(), await starting
        try:
            frames_by_choice = await _collect(flight, watch)
        finally:
            await self._flights.end(flight)
        writer = AnswerWriter(shape, flight.key, flight.record)
        if shape.prompt is None:
            answer = writer.whole([join(frames) for frames in frames_by_choice])
        else:
            prompts, joined = zip(*map(shape.prompt.part, frames_by_choice), strict=True)
            answer = writer.whole(joined, prompts)
        if shape.timed:
            answer.timings = watch.timings(*writer.totals([frames[-1] for frames in frames_by_choice]))
        return answer


async def collect(flight: Flight, watch: Stopwatch | None = None) -> list[Frame]:
    """One joined frame for each choice of ``flight``; the ``watch`` notes when tokens of answers arrive."""
    return [join(frames) for frames in await _collect(flight, watch or Stopwatch())]


async def _collect(flight: Flight, watch: Stopwatch) -> list[list[Frame]]:
    """The frames of each choice; the ``watch`` notes when tokens of answers arrive."""
    frames_by_choice: list[list[Frame]] = [[] for _ in flight.streams]
    async with aclosing(flight.frames()) as batches:
        async for place, frames in batches:
            frames_by_choice[place] += frames
            if any(frame.first_index >= 0 and frame.tokens for frame in frames):
                watch.note()
    return frames_by_choice
