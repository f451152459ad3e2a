"""All requests in flight at this gateway: those that began here, and those taken over from other gateways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.charge import FIRST, BillStore, Charge, new_payer
from outrider.gateway.admission.limit_store import LimitReached
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.ledger.catalog import StreamCatalog
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.ledger.record_writer import Recording
from outrider.gateway.ledger.takeover_notices import TakeoverNotices
from outrider.gateway.observer.request_observer import ObservedRequest, Observers, RequestObserver
from outrider.gateway.request.filtering import Filtering
from outrider.gateway.request.flight import Flight, read_unfiltered
from outrider.gateway.request.tenant_erasure import TenantErasure
from outrider.gateway.request.upkeep import Upkeep
from outrider.gateway.routing import VerifierSelection
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import AnswerStream
from outrider.gateway.stream.frame_reader import FrameReader
from outrider.gateway.stream.pool import AnswerPool
from outrider.gateway.stream.token_stream import LogSummary, TokenStream
from outrider.mesh.attempts import persist
from outrider.mesh.errors import AlreadyExists, OutriderError, Unavailable
from outrider.mesh.service import Mesh

T = TypeVar("T")

_TAKEOVER_S = 5.0
"""Seconds that a takeover waits for the slots that the gateway before it holds."""


class Flights:
    """Begins, takes over and ends flights.

    Attributes:
        verifiers: Calls to verifiers.
        catalog: The streams of the mesh, for which this gateway may have no flight.
        erasure: Erases tenants.
        filtering: The filters of answers.
        reader: Reads frames, and ends answers for all their readers.
    """

    def __init__(self, mesh: Mesh, settings: GatewaySettings, observers: Observers) -> None:
        self._tasks, self._settings, self._observers = mesh.tasks, settings, observers
        self._flights: set[Flight] = set()
        self._bills = BillStore(mesh.bus, settings.replay_s)
        self._refused = RefusedJobs(mesh.bus)
        selection = VerifierSelection(settings)
        selection.attach(mesh)
        self.verifiers = Verifiers(
            mesh.registry, mesh.tasks, settings, selection, self._refused, self._on_verifier_lost
        )
        self.reader = FrameReader(mesh.bus, mesh.instance)
        self.catalog = StreamCatalog(mesh, settings, self.verifiers, self.reader.notify)
        self._takeovers = TakeoverNotices(mesh.bus, mesh.instance, self._on_taken_over)
        self.filtering = Filtering(settings, self.reader.end)
        self._pool = AnswerPool(settings, self.reader, self._generate)
        self.erasure = TenantErasure(self._flights, self.catalog, self._pool, self._bills, self._refused)
        self._upkeep = Upkeep(mesh, self.verifiers, self.catalog, self._pool, self._flights, settings.lease_s)
        metrics.streams.set_function(lambda: len(self))

    def __len__(self) -> int:
        """The number of streams in flight."""
        return sum(len(flight.streams) for flight in self._flights)

    def __iter__(self) -> Iterator[Flight]:
        """The flights."""
        return iter(self._flights)

    async def open(self) -> None:
        """Prepares the stores and subscribes to other gateways; raises `Unavailable` if bills cannot be stored."""
        if self._settings.auth == "keys":
            await self._bills.open()
        await self.reader.open()
        await self._takeovers.open()
        await self._refused.open()
        await self.catalog.open()

    async def claim(self, key: Key) -> None:
        """Reserves an id that a client chose; raises `AlreadyExists` if it is taken.

        Without a ledger only the requests in flight at this gateway count.
        """
        if self._has_flight(key):
            raise AlreadyExists("there is a request of this id already", param="request_id")
        await self.catalog.claim(key)

    async def begin(
        self,
        key: Key,
        jobs: Sequence[Job],
        record: Record,
        admission: Admission,
        *,
        resumable: bool,
        operation: str = "text_completion",
    ) -> Flight:
        """Reserves the caller's limits and submits ``jobs``, the choices of ``record``.

        ``operation`` is as in `ObservedRequest`.
        Raises as `Admission.reserve` and `AnswerStream.open`.
        """
        charge = Charge(admission, self._bills, key.bill, FIRST, shared=resumable)
        prompts = sum(len(job.prompt) for job in jobs[:: record.answers])
        await charge.begin(prompts, [job.sampling.max_tokens for job in jobs])
        # a record that the ledger does not take is kept by the verifier of the job itself, so the answer is not shared
        alone = not jobs[0].coalesce or (resumable and self.catalog.ledger.trouble is not None)
        make = self._generate if alone else self._pool.stream
        streams = [make(job) for job in _prepared(jobs, key, record if resumable else None)]
        recording = Recording(key, record, streams, self.catalog.writer, resumable=resumable, recorded=False)
        flight = self._launch(recording, streams, charge, admission.began, operation)
        try:
            await _all([stream.open() for stream in streams])
            await flight.recording.wait_written()
            flight.observer.begin()
        except BaseException as error:
            charge.waive()
            flight.observer.refuse(error)
            await self.end(flight)
            raise
        return flight

    async def resume(self, key: Key, record: Record, verifiers: Sequence[str], admission: Admission) -> Flight:
        """Takes over a stream that the catalog found, whichever gateway began it, and reads it from its first token.

        Reserves what the stream can still use. Raises `Unavailable` if its log cannot be read, `NotFound` if it was
        deleted meanwhile, and `LimitReached`.
        """
        jobs = record.jobs(key.request, admission.caller)
        self.filtering.require(jobs[0])
        charge = Charge(admission, self._bills, key.bill, new_payer(), shared=True)
        streams = [self._generate(job) for job in _prepared(jobs, key, record)]
        recording = Recording(key, record, streams, self.catalog.writer, resumable=True, recorded=True)
        flight = self._launch(recording, streams, charge, admission.began, owned=False)
        members = [self.verifiers.find(instance, admission.caller.residency) for instance in verifiers]
        try:
            pairs = zip(streams, members, strict=True)
            logged = await _all([stream.attach(self.catalog.frames, member) for stream, member in pairs])
            flight.observer.skip([log.tokens for log in logged])
            if not (await self.catalog.locate(key)).in_ledger:
                flight.recording.mark_missing()
            await charge.take([log.tokens for log in logged])
            await self._reserve(flight, charge, logged)
            flight.observer.begin()
        except BaseException:
            await self.end(flight)
            raise
        self._take_ownership(flight)
        self._upkeep.renew([flight])
        if not flight.recording.recorded:
            flight.recording.write()
        metrics.replays.inc()
        return flight

    def runs(self, key: Key, verifier: str) -> bool:
        """Whether a stream goes on at this gateway, or may go on at the ``verifier`` of its record."""
        return self._has_flight(key) or self.verifiers.find(verifier) is not None

    async def leave(self, flight: Flight) -> None:
        """Ends a flight whose reader is gone, unless its record says that it lingers or runs in the background."""
        if (flight.record.lingers or flight.record.background) and flight.running and flight.owned:
            flight.read_in_background(self._tasks.spawn(self._linger(flight), "linger"))
        else:
            await self.end(flight)

    async def end(self, flight: Flight) -> None:
        """Closes and charges a flight; an unfinished request is cancelled at its verifiers if the flight owns it."""
        self._flights.discard(flight)
        try:
            await flight.close()
        finally:
            await flight.settle(self._tasks)

    def leave_all(self) -> None:
        """Has all readers fail, and leaves resumable flights to other gateways: verifiers keep them for ``lease_s``."""
        for flight in self._flights:
            if flight.recording.resumable:
                flight.disown()
            flight.withdraw(Unavailable("the gateway is shutting down", retry_after=1.0))

    def _has_flight(self, key: Key) -> bool:
        return any(flight.key == key for flight in self._flights)

    def _launch(
        self,
        recording: Recording,
        streams: Sequence[AnswerStream],
        charge: Charge,
        began: float,
        operation: str = "",
        *,
        owned: bool = True,
    ) -> Flight:
        """A new flight; arguments as of `Flight` and `ObservedRequest`."""
        record = recording.record
        prompts = record.prompt_tokens[:: record.answers]
        request = ObservedRequest(record.served.name, recording.key.tenant, began, prompts, record.choices, operation)
        observer = RequestObserver(self._observers, request)
        read = self.filtering.read if streams[0].job.filters else read_unfiltered
        flight = Flight(recording, charge, streams, observer, read, owned=owned)
        self._flights.add(flight)
        return flight

    def _generate(self, job: Job) -> TokenStream:
        return TokenStream(job, self.verifiers, self.reader, self._settings)

    async def _reserve(self, flight: Flight, charge: Charge, logged: Sequence[LogSummary]) -> None:
        """Reserves tokens and slots; if the earlier gateway still holds slots, announces the takeover and waits."""
        pairs = zip(flight.streams, logged, strict=True)
        most = [stream.job.sampling.max_tokens if log.open_ended else log.tokens for stream, log in pairs]
        running = sum(log.open_ended for log in logged)
        try:
            await charge.reserve(most, running)
        except LimitReached as refusal:
            if refusal.status.demand.period_s:
                raise
            self._take_ownership(flight)
            await persist(lambda: charge.reserve(most, running), _TAKEOVER_S, (LimitReached,))

    def _take_ownership(self, flight: Flight) -> None:
        """Makes ``flight`` the owner of its request; all other flights of the request disown it."""
        flight.own()
        self._takeovers.announce(flight.key)
        self._on_taken_over(flight.key, flight)

    def _on_taken_over(self, key: Key, owner: Flight | None = None) -> None:
        """Disowns the flights of a request that another reader owns now, and ends those without a client."""
        for flight in [each for each in self._flights if each.key == key and each is not owner]:
            flight.disown()
            if flight.background_reader is not None:
                flight.background_reader.cancel()
                self._tasks.spawn(self.end(flight), "takeover")

    async def _linger(self, flight: Flight) -> None:
        seconds = self._settings.replay_s if flight.record.background else self._settings.linger_s
        with suppress(TimeoutError, OutriderError):
            async with asyncio.timeout(seconds), aclosing(flight.frames()) as batches:
                async for _ in batches:
                    pass
        await self.end(flight)

    def _on_verifier_lost(self, instance: str) -> None:
        self._upkeep.follow("lost", instance)


def _prepared(jobs: Iterable[Job], key: Key, record: Record | None) -> list[Job]:
    """``jobs`` that begin now, with the stream's id and ``record``, which their verifiers keep for other gateways."""
    fields: dict[str, Any] = {"begun": time.monotonic()}
    if record is not None:
        fields |= {"stream_id": key.request, "record": record.encode_for_verifier()}
    return [msgspec.structs.replace(job, **fields) for job in jobs]


async def _all(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all ``calls``; the first failure cancels the others and is raised."""
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
