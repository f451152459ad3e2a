"""``/completion``, ``/apply-template`` and ``/props``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from importlib.metadata import version

import msgspec
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.http.sse import EventStream
from outrider.gateway.api.llama.bodies import (
    COMPLETION,
    CompletionPart,
    CompletionRequest,
    GenerationSettings,
    Props,
    Rendered,
    TemplateRequest,
)
from outrider.gateway.api.openai.routes import collect
from outrider.gateway.api.openai.timings import Stopwatch
from outrider.gateway.api.schema.headers import with_routing_headers
from outrider.gateway.api.schema.ignored import announce, collector
from outrider.gateway.api.schema.json_schemas import note_unenforced
from outrider.gateway.api.schema.parameters import read
from outrider.gateway.api.schema.prompts import chat
from outrider.gateway.errors import error_answer
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Finish, Frame
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_log = get_logger("llama")


class LlamaRoutes:
    """The routes of llama-server's own API. Streams cannot be resumed."""

    def __init__(self, generations: Generations, flights: Flights, settings: GatewaySettings) -> None:
        self._generations, self._flights, self._settings = generations, flights, settings
        self.routes = [
            Route("/completion", self._complete, methods=["POST"]),
            Route("/apply-template", self._render, methods=["POST"]),
            Route("/props", self._props),
        ]

    async def _complete(self, request: Request) -> Response:
        watch, ignored = Stopwatch(), collector(self._settings)
        raw = await read_body(request, self._settings.max_body_bytes)
        asked = read(raw, CompletionRequest, COMPLETION, ignored)
        body = asked.completion()
        note_unenforced([*body.unenforced], ignored)
        announce(request, ignored)
        starting = self._generations.start(
            request.state.request_id,
            with_routing_headers(asked.generation(body), request),
            b"",
            request.state.admission,
            resumable=False,
            lingers=False,
        )
        if not asked.stream:
            whole = self._whole(starting, tokens=asked.return_tokens, watch=watch)
            return json_response(await until_disconnected(request.receive, whole))
        return EventStream(
            starting,
            lambda flight: _events(flight, watch),
            self._flights.leave,
            _failure,
            self._settings,
            obfuscated=request.state.admission.caller.obfuscation,
        )

    async def _whole(self, starting: Awaitable[Flight], *, tokens: bool, watch: Stopwatch) -> CompletionPart:
        flight = await starting
        try:
            (frame,) = await collect(flight, watch)
        finally:
            await self._flights.end(flight)
        return _part(frame, flight, watch, tokens=tokens)

    async def _render(self, request: Request) -> Response:
        """The text of a chat: its tokens as text, as the tokenizer renders them."""
        ignored = collector(self._settings)
        raw = await read_body(request, self._settings.max_body_bytes)
        body = read(raw, TemplateRequest, ignored=ignored)
        announce(request, ignored)
        caller = request.state.admission.caller
        served = await self._generations.find(body.model, caller)
        prompt = chat(body.messages, body.chat_template_kwargs)
        prompt = msgspec.structs.replace(prompt, answering=body.add_generation_prompt)
        ids = await until_disconnected(request.receive, self._generations.encode(served, prompt, caller))
        return json_response(Rendered(await self._generations.decode(served, ids)))

    async def _props(self, request: Request) -> Response:
        served = await self._generations.find(request.query_params.get("model"), request.state.admission.caller)
        context = GenerationSettings(served.context_length)
        return json_response(Props(context, 1, served.name, served.name, build_info=f"outrider {version('outrider')}"))


async def _events(flight: Flight, watch: Stopwatch) -> AsyncGenerator[bytes, None]:
    """The events of a stream, of which a failure is the last."""
    try:
        async with aclosing(flight.frames()) as batches:
            async for _, frames in batches:
                watch.note()
                yield b"".join(_event(_part(frame, flight, watch, tokens=True)) for frame in frames)
    except OutriderError as error:
        yield _failure(error)
    except Exception:
        _log.exception("a stream failed", request=flight.key.request)
        yield _failure(Internal())


def _part(frame: Frame, flight: Flight, watch: Stopwatch, *, tokens: bool) -> CompletionPart:
    part = CompletionPart("".join(frame.texts), frame.tokens if tokens else [], frame.finish is not None, 0)
    if frame.finish is not None:
        used = frame.usage
        part.model, part.stopping_word = flight.record.served.name, frame.stop or ""
        part.stop_type = "word" if frame.stop else "eos" if frame.finish is Finish.STOP else "limit"
        part.tokens_predicted = used.completion_tokens if used else 0
        part.tokens_evaluated = used.prompt_tokens if used else 0
        part.tokens_cached = used.cached_tokens if used else 0
        part.timings = watch.timings(part.tokens_evaluated, part.tokens_predicted, used)
    return part


def _failure(error: OutriderError) -> bytes:
    return _event(error_answer(error))


def _event(value: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
