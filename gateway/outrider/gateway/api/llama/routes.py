"""``/completion``, ``/infill``, ``/apply-template`` and ``/props``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from functools import partial
from importlib.metadata import version
from typing import Any

import msgspec
from outrider.gateway.api.http.messages import json_response, read_body, until_disconnected
from outrider.gateway.api.http.sse import EventStream
from outrider.gateway.api.llama.bodies import (
    COMPLETION,
    CompletionPart,
    CompletionRequest,
    GenerationSettings,
    InfillRequest,
    Props,
    Rendered,
    TemplateRequest,
)
from outrider.gateway.api.openai.routes import collect
from outrider.gateway.api.openai.timings import Stopwatch
from outrider.gateway.api.schema.headers import with_routing_headers, with_timeout_header
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
            Route("/completion", partial(self._complete, CompletionRequest), methods=["POST"]),
            Route("/infill", partial(self._complete, InfillRequest), methods=["POST"]),
            Route("/apply-template", self._render, methods=["POST"]),
            Route("/props", self._props),
        ]

    async def _complete(self, kind: type[CompletionRequest], request: Request) -> Response:
        watch, ignored = Stopwatch(), collector(self._settings)
        raw = await read_body(request, self._settings.max_body_bytes)
        asked = read(raw, kind, COMPLETION, ignored)
        body = with_timeout_header(asked.completion(), request)
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
            whole = self._whole(starting, asked, watch)
            answer = await until_disconnected(request.receive, whole)
            return json_response(_chosen(answer, asked.response_fields) if asked.response_fields else answer)
        return EventStream(
            starting,
            lambda flight: _events(flight, asked, watch),
            self._flights.leave,
            _failure,
            self._settings,
            obfuscated=request.state.admission.caller.obfuscation,
        )

    async def _whole(self, starting: Awaitable[Flight], asked: CompletionRequest, watch: Stopwatch) -> CompletionPart:
        flight = await starting
        try:
            (frame,) = await collect(flight, watch)
        finally:
            await self._flights.end(flight)
        return _part(frame, flight, asked, watch)

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


async def _events(flight: Flight, asked: CompletionRequest, watch: Stopwatch) -> AsyncGenerator[bytes, None]:
    """The events of a stream, of which a failure is the last."""
    try:
        async with aclosing(flight.frames()) as batches:
            async for _, frames in batches:
                watch.note()
                yield b"".join(_event(_part(frame, flight, asked, watch)) for frame in frames)
    except OutriderError as error:
        yield _failure(error)
    except Exception:
        _log.exception("a stream failed", request=flight.key.request)
        yield _failure(Internal())


def _part(frame: Frame, flight: Flight, asked: CompletionRequest, watch: Stopwatch) -> CompletionPart:
    text, tokens = ("", []) if asked.silent else ("".join(frame.texts), frame.tokens)
    told = asked.stream or asked.return_tokens
    part = CompletionPart(text, tokens if told else [], frame.finish is not None, 0)
    if frame.finish is not None:
        used = frame.usage
        part.model, part.stopping_word = flight.record.served.name, frame.stop or ""
        part.stop_type = "word" if frame.stop else "eos" if frame.finish is Finish.STOP else "limit"
        part.tokens_predicted = used.completion_tokens if used and not asked.silent else 0
        part.tokens_evaluated = used.prompt_tokens if used else 0
        part.tokens_cached = used.cached_tokens if used else 0
        part.truncated = False
        part.timings = watch.timings(part.tokens_evaluated, part.tokens_predicted, used)
    return part


def _chosen(answer: CompletionPart, paths: Sequence[str]) -> dict[str, Any]:
    """The members of ``answer`` at ``paths``, by their paths; paths that lead nowhere are left out."""
    chosen, members = dict[str, Any](), msgspec.to_builtins(answer)
    for path in paths:
        found: Any = members
        for name in path.split("/"):
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            chosen[path] = found
    return chosen


def _failure(error: OutriderError) -> bytes:
    return _event(error_answer(error))


def _event(value: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
