"""OpenAI's endpoints."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec import UNSET
from outrider.gateway.errors import error_answer
from outrider.gateway.generations import Generations
from outrider.gateway.http import EventStream, json_response, read_body, until_gone
from outrider.gateway.openai.answers import CHAT, COMPLETION, Form, Writer
from outrider.gateway.openai.bodies import Body, read_chat, read_completion
from outrider.gateway.reassembly import join
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.sse import DONE, event
from outrider.gateway.stream import TokenStream
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_log = get_logger("openai")


class ModelBody(msgspec.Struct):
    """A model, as it is listed."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "outrider"


class ModelList(msgspec.Struct):
    """All models."""

    data: list[ModelBody]
    object: str = "list"


class OpenAi:
    """``/v1/completions``, ``/v1/chat/completions`` and ``/v1/models``."""

    def __init__(self, generations: Generations, settings: GatewaySettings) -> None:
        self._generations, self._settings = generations, settings
        self._created = int(time.time())
        self.routes = [
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._model, methods=["GET"]),
        ]

    async def _completions(self, request: Request) -> Response:
        body = read_completion(await read_body(request, self._settings.max_body_bytes))
        return await self._generate(request, body, COMPLETION)

    async def _chat(self, request: Request) -> Response:
        body = read_chat(await read_body(request, self._settings.max_body_bytes))
        return await self._generate(request, body, CHAT)

    async def _models(self, request: Request) -> Response:
        served = self._generations.models.all()
        return json_response(ModelList([ModelBody(model.name, self._created) for model in served]))

    async def _model(self, request: Request) -> Response:
        served = self._generations.models.find(request.path_params["model"])
        return json_response(ModelBody(served.name, self._created))

    async def _generate(self, request: Request, body: Body, form: Form) -> Response:
        generation, request_id = body.generation(), request.state.request_id
        stream = await until_gone(request.receive, self._generations.start(request_id, generation))
        writer = Writer(form, request_id, stream.job.served, generation.sampling.seed, return_tokens=body.return_tokens)
        if body.stream:
            return EventStream(self._events(stream, writer, body.include_usage), lambda: self._generations.end(stream))
        try:
            whole = await until_gone(request.receive, _collect(stream))
        finally:
            await self._generations.end(stream)
        return json_response(writer.whole(whole, stream.verifier))

    async def _events(self, stream: TokenStream, writer: Writer, include_usage: bool) -> AsyncGenerator[bytes, None]:
        usage = None if include_usage else UNSET
        try:
            if writer.opening is not None:
                yield event(writer.part([writer.opening], usage))
            async with aclosing(stream.frames()) as frames:
                async for frame in frames:
                    chunk = writer.chunk(frame, stream.verifier, usage)
                    if chunk is not None:
                        yield event(chunk)
                    if include_usage and frame.finish is not None:
                        yield event(writer.last(frame, stream.verifier))
        except OutriderError as error:
            yield event(error_answer(error))
        except Exception:
            _log.exception("a stream failed", request=stream.job.request_id)
            yield event(error_answer(Internal()))
        yield DONE


async def _collect(stream: TokenStream) -> Frame:
    async with aclosing(stream.frames()) as frames:
        return join([frame async for frame in frames])
