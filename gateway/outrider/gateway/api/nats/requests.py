"""The gateway's API over NATS: requests and answers as JSON, tokens as frames on the request's own subject."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.api.nats import queries
from outrider.gateway.api.nats.keeper import Keeper
from outrider.gateway.api.openai.answers import encode_shape
from outrider.gateway.api.schema.ignored import collector, ignored_header
from outrider.gateway.ledger.record import Key
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.request.intake import Generations
from outrider.gateway.request.models import require_allowed
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Endpoint, MicroService, Query
from outrider.mesh.errors import Internal, InvalidRequest, OutriderError, Overloaded, Unavailable
from outrider.mesh.service import Mesh
from outrider.mesh.telemetry import continued_span, get_logger, tracing
from outrider.wire import subjects
from outrider.wire.frames import Finish, Frame, token_subject

Work = Callable[[Query, Admission, dict[str, str]], Awaitable[None]]

_MOST_QUERIES = 1000
"""Messages that are being answered at once; a further one is refused."""
_log = get_logger("nats")


class NatsRequests:
    """Answers requests over NATS. Any gateway may get a request; it reads a generation that it begins to the end."""

    def __init__(self, mesh: Mesh, flights: Flights, settings: GatewaySettings, access: AccessControl) -> None:
        self._bus, self._tasks, self._settings, self._access = mesh.bus, mesh.tasks, settings, access
        self._instance = mesh.instance
        self._handled = 0
        self._flights, self._generations = flights, Generations(flights, settings)
        self._keeper = Keeper(flights, mesh.bus, mesh.tasks, settings.nats_request_s)
        self._service = MicroService(
            mesh.bus,
            name="outrider",
            version=importlib.metadata.version("outrider"),
            description="Completions and chats; tokens are frames on the subject that the answer names.",
            queue="outrider-gateways",
            endpoints=[
                self._endpoint("hello", subjects.HELLO, self._hello),
                self._endpoint("models", subjects.MODELS, self._models),
                self._endpoint("generate", subjects.GENERATE, self._generate, counts=True),
                self._endpoint("generate-model", f"{subjects.GENERATE}.>", self._generate, counts=True),
                self._endpoint("resume", subjects.RESUME, self._resume),
                self._endpoint("cancel", subjects.CANCEL, self._cancel),
            ],
        )

    async def open(self) -> None:
        """Begins to answer."""
        await self._service.open()

    async def drain(self) -> None:
        """Takes no new requests, and returns when all generations have ended."""
        await self._service.close()
        await self._keeper.drain()

    async def stop(self) -> None:
        """Leaves unfinished generations to other gateways."""
        await self._keeper.stop()
        await self._service.close()

    def _endpoint(self, name: str, subject: str, work: Work, *, counts: bool = False) -> Endpoint:
        async def handle(query: Query) -> None:
            if self._handled >= _MOST_QUERIES:
                return await queries.refuse(query, Overloaded("too many requests over NATS at once"), {})
            self._handled += 1
            self._tasks.spawn(self._handle(name, query, work, counts), name)

        return Endpoint(name, subject, handle)

    async def _handle(self, name: str, query: Query, work: Work, counts: bool) -> None:
        with continued_span(query.headers, f"NATS {name}") if tracing() else nullcontext():
            await self._answer_query(name, query, work, counts)

    async def _answer_query(self, name: str, query: Query, work: Work, counts: bool) -> None:
        headers: dict[str, str] = {}
        status = 200
        try:
            async with self._access.admitted(queries.sender(query), headers, counts=counts) as admission:
                await work(query, admission, headers)
        except OutriderError as error:
            status = error.http_status
            await queries.refuse(query, error, headers)
        except Exception:
            status = Internal.http_status
            _log.exception("a request failed", endpoint=name)
            await queries.refuse(query, Internal(), headers)
        finally:
            self._handled -= 1
            metrics.messages.labels(name, str(status)).inc()

    async def _hello(self, query: Query, admission: Admission, headers: dict[str, str]) -> None:
        tenant = admission.caller.tenant
        await _answer(query, headers, {"tenant": tenant, "subject_prefix": queries.subject_prefix(tenant)})

    async def _models(self, query: Query, admission: Admission, headers: dict[str, str]) -> None:
        names = self._generations.models.names(admission.caller.may_use)
        await _answer(query, headers, {"models": names})

    async def _generate(self, query: Query, admission: Admission, headers: dict[str, str]) -> None:
        """Answers when the ledger has the request: any gateway can then resume or cancel it."""
        limit, ignored = self._settings.max_body_bytes, collector(self._settings)
        await admission.take_turn(len(query.data))
        request = queries.read_generate(query, admission.caller.tenant, limit, ignored)
        names = request.shaped.shape.ignored
        headers.update(ignored_header(names))
        flight = await self._begin(request, admission)
        self._keeper.keep(flight, request.timeout_s)
        await flight.recording.wait_recorded()
        await _answer(query, headers, self._description(flight) | ({"ignored": names} if names else {}))

    async def _begin(self, request: queries.GenerateQuery, admission: Admission) -> Flight:
        key = Key(admission.caller.tenant, request.request_id)
        if request.chosen:
            await self._flights.claim(key)
        try:
            generation, shape = request.shaped.generation, encode_shape(request.shaped.shape)
            return await self._generations.start(
                key.request, generation, shape, admission, resumable=True, lingers=True
            )
        except BaseException:
            if request.chosen:
                await self._flights.catalog.unclaim(key)
            raise

    async def _resume(self, query: Query, admission: Admission, headers: dict[str, str]) -> None:
        """Answers once with the request's subjects, and then with each frame."""
        resume = queries.read_resume(query)
        key = Key.read(admission.caller.tenant, resume.request_id)
        record, verifiers = await self._flights.catalog.find(key)
        require_allowed(record.served.name, admission.caller.may_use)
        if len(resume.from_index) not in (0, 1, record.choices):
            raise InvalidRequest(f"from_index must hold one index, or {record.choices}", param="from_index")
        start = resume.from_index or record.first_indices
        flight = await self._flights.resume(key, record, verifiers, admission)
        await _answer(query, headers, self._description(flight))
        self._keeper.keep(flight, None, query.answer, start if len(start) == record.choices else start * record.choices)

    async def _cancel(self, query: Query, admission: Admission, headers: dict[str, str]) -> None:
        key = Key.read(admission.caller.tenant, queries.read_request_id(query))
        try:
            await self._flights.catalog.cancel(key)
        except Unavailable:  # without a ledger, the gateway that reads the request ends it
            end = Frame(key.request, 0, [], [], [], Finish.CANCELLED, error="the stream was cancelled")
            for unfiltered in (False, True):  # without the record nobody knows whether the request is filtered
                subject = token_subject(key.tenant, key.request, unfiltered=unfiltered)
                self._flights.reader.end(subject, end)
        await _answer(query, headers, {"request_id": key.request})

    def _description(self, flight: Flight) -> dict[str, Any]:
        subjects = [stream.job.reader_subject for stream in flight.streams]
        record = flight.record
        return {
            "request_id": flight.key.request,
            "subject": subjects[0],
            "subjects": subjects,
            "model": record.served.name,
            "created": record.created,
            "seed": record.seed,
            "gateway": self._instance,
        }


async def _answer(query: Query, headers: dict[str, str], content: dict[str, Any]) -> None:
    await query.answer(msgspec.json.encode(content), headers)
