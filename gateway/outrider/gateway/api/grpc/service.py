"""`outrider.v1.Inference`: the gateway's API over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
from grpc.aio import ServicerContext as Context
from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.api.grpc.calls import Call, Calls
from outrider.gateway.api.grpc.requests import read_generation, require_readable
from outrider.gateway.api.grpc.responses import ResponseWriter
from outrider.gateway.api.http.messages import require_plain
from outrider.gateway.api.openai.answers import encode_shape
from outrider.gateway.api.schema.prompts import chat
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.generation import Generation, Messages, Text
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.request.models import require_allowed
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import InvalidRequest
from outrider.mesh.tasks import Tasks
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceServicer


class Inference(InferenceServicer):
    """Serves callers over gRPC; gRPC cancels the handler of a call when its client leaves or its deadline passes."""

    def __init__(self, flights: Flights, settings: GatewaySettings, access: AccessControl, tasks: Tasks) -> None:
        self._flights, self._settings, self._tasks = flights, settings, tasks
        self._generations, self._calls = Generations(flights, settings), Calls(access)

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:  # noqa: N802
        """A stream, which any gateway can resume."""
        async with self._calls.enter(context, "Generate", counts=True) as call:
            flight = await self._start(call, request, context, resumable=True)
            self._leave_with(context, flight)
            async with aclosing(ResponseWriter(flight, _start_indices([], flight.record)).run()) as responses:
                async for response in responses:
                    yield response

    async def Complete(self, request: pb.CompleteRequest, context: Context) -> pb.CompleteResponse:  # noqa: N802
        """A whole answer."""
        async with self._calls.enter(context, "Complete", counts=True) as call:
            require_readable(request, self._settings.max_body_bytes)
            if request.request.linger:
                raise InvalidRequest("linger may only be given to Generate", param="linger")
            flight = await self._start(call, request.request, context, resumable=False)
            try:
                return await ResponseWriter(flight, []).whole()
            finally:
                await self._flights.end(flight)

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:  # noqa: N802
        """The rest of a stream, from the client's index on, whichever gateway began the stream."""
        async with self._calls.enter(context, "Resume") as call:
            require_readable(request, self._settings.max_body_bytes)
            key = _key(request.request_id, call)
            record, verifiers = await self._flights.catalog.find(key)
            require_allowed(record.served.name, call.admission.caller.may_use)
            start = _start_indices(list(request.from_index), record)
            flight = await self._flights.resume(key, record, verifiers, call.admission)
            self._leave_with(context, flight)
            async with aclosing(ResponseWriter(flight, start).run()) as responses:
                async for response in responses:
                    yield response

    async def Cancel(self, request: pb.CancelGenerationRequest, context: Context) -> pb.CancelGenerationResponse:  # noqa: N802
        """Ends a stream for all its readers."""
        async with self._calls.enter(context, "Cancel") as call:
            await self._flights.catalog.cancel(_key(request.request_id, call))
            return pb.CancelGenerationResponse()

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:  # noqa: N802
        """Names of the models that the caller may use."""
        async with self._calls.enter(context, "ListModels") as call:
            return pb.ListModelsResponse(models=self._generations.models.names(call.admission.caller.may_use))

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:  # noqa: N802
        """Ids of a text or a chat."""
        async with self._calls.enter(context, "Tokenize", counts=True) as call:
            require_readable(request, self._settings.max_body_bytes)
            served = await self._generations.find(request.model or None, call.admission.caller)
            await call.admission.take_turn(request.ByteSize())
            tokens = await self._generations.encode(served, _prompt(request), call.admission.caller)
            return pb.TokenizeResponse(tokens=tokens, context_length=served.context_length)

    async def Detokenize(self, request: pb.DetokenizeRequest, context: Context) -> pb.DetokenizeResponse:  # noqa: N802
        """The text of ids."""
        async with self._calls.enter(context, "Detokenize", counts=True) as call:
            require_readable(request, self._settings.max_body_bytes)
            served = await self._generations.find(request.model or None, call.admission.caller)
            text = await self._generations.decode(served, request.tokens, keep_special=request.keep_special)
            return pb.DetokenizeResponse(text=text)

    async def _start(self, call: Call, request: pb.GenerateRequest, context: Context, *, resumable: bool) -> Flight:
        await call.admission.take_turn(request.ByteSize())
        shaped = read_generation(request, self._settings.max_body_bytes)
        generation = shaped.generation if request.linger else _with_call_deadline(shaped.generation, context)
        shape = encode_shape(shaped.shape)
        return await self._generations.start(
            call.id, generation, shape, call.admission, resumable=resumable, lingers=request.linger
        )

    def _leave_with(self, context: Context, flight: Flight) -> None:
        """Leaves ``flight`` when the call is over: a handler that is cancelled while it sends would not notice."""
        context.add_done_callback(lambda _: self._tasks.spawn(self._flights.leave(flight), "leave"))


def _with_call_deadline(generation: Generation, context: Context) -> Generation:
    """``generation`` with the deadline of the call itself, if the call has one."""
    left_s = context.time_remaining()
    if left_s is None:
        return generation
    return msgspec.structs.replace(generation, deadlines=generation.deadlines.sooner(left_s))


def _key(request_id: str, call: Call) -> Key:
    return Key.read(call.admission.caller.tenant, request_id)


def _start_indices(from_index: list[int], record: Record) -> list[int]:
    """The token index of each choice from which the client wants tokens; raises `InvalidRequest`."""
    if len(from_index) not in (0, 1, record.choices):
        raise InvalidRequest(f"from_index must be one index, or {record.choices}", param="from_index")
    indices = from_index or record.first_indices
    return indices if len(indices) == record.choices else indices * record.choices


def _prompt(request: pb.TokenizeRequest) -> Text | Messages:
    if request.WhichOneof("prompt") == "text":
        add_special = request.add_special if request.HasField("add_special") else True
        return Text(request.text, add_special, request.parse_special if request.HasField("parse_special") else None)
    require_plain(request.messages_json.encode(), "messages_json")
    try:
        return chat(msgspec.json.decode(request.messages_json, type=list[dict[str, object]]))
    except msgspec.MsgspecError:
        raise InvalidRequest("give a text, or messages_json with a JSON array of messages", param="prompt") from None
