"""OpenAI's endpoints."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from msgspec import UNSET
from outrider.gateway.choices import merged
from outrider.gateway.errors import error_answer
from outrider.gateway.generations import Generations
from outrider.gateway.http import EventStream, json_response, read_body, until_gone
from outrider.gateway.openai.answers import Writer
from outrider.gateway.openai.bodies import Body, read_chat, read_completion
from outrider.gateway.openai.forms import CHAT, COMPLETION, Form, calls_form
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
        form = CHAT if body.calling is None else calls_form(body.calling, request.state.request_id)
        return await self._generate(request, body, form)

    async def _models(self, request: Request) -> Response:
        may_use = request.state.admission.caller.may_use
        served = [model for model in self._generations.models.all() if may_use(model.name)]
        return json_response(ModelList([ModelBody(model.name, self._created) for model in served]))

    async def _model(self, request: Request) -> Response:
        may_use = request.state.admission.caller.may_use
        served = self._generations.models.find(request.path_params["model"], may_use)
        return json_response(ModelBody(served.name, self._created))

    async def _generate(self, request: Request, body: Body, form: Form) -> Response:
        asked, request_id, admission = body.generation(), request.state.request_id, request.state.admission
        streams = await until_gone(request.receive, self._generations.start(request_id, asked, admission))
        served, seed = streams[0].job.served, asked.sampling.seed
        writer = Writer(form, request_id, served, seed, choices=asked.choices, return_tokens=body.return_tokens)
        if body.stream:
            events = self._events(streams, writer, body.include_usage)
            return EventStream(events, lambda: self._generations.end(streams, admission))
        try:
            whole = await until_gone(request.receive, _collect(streams))
        finally:
            await self._generations.end(streams, admission)
        return json_response(writer.whole(whole, [stream.verifier for stream in streams]))

    async def _events(
        self, streams: Sequence[TokenStream], writer: Writer, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        usage = None if include_usage else UNSET
        ends: dict[int, Frame] = {}
        try:
            for opening in writer.opening:
                yield event(msgspec.structs.replace(opening, usage=usage))
            async with aclosing(merged(streams)) as frames:
                async for place, frame in frames:
                    chunk = writer.chunk(frame, place, streams[place].verifier, usage)
                    if chunk is not None:
                        yield event(chunk)
                    if frame.finish is not None:
                        ends[place] = frame
            if include_usage:
                verifiers = [stream.verifier for stream in streams]
                yield event(writer.last([ends[place] for place in range(len(streams))], verifiers))
        except OutriderError as error:
            yield event(error_answer(error))
        except Exception:
            _log.exception("a stream failed", request=streams[0].job.request_id)
            yield event(error_answer(Internal()))
        yield DONE


async def _collect(streams: Sequence[TokenStream]) -> list[Frame]:
    heard: list[list[Frame]] = [[] for _ in streams]
    async with aclosing(merged(streams)) as frames:
        async for place, frame in frames:
            heard[place].append(frame)
    return [join(frames) for frames in heard]
