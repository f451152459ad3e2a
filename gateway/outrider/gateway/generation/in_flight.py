"""All requests in flight at this gateway, and those it takes up from others."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.bill import FIRST
from outrider.gateway.admission.bill_store import Bills
from outrider.gateway.admission.caller import Caller
from outrider.gateway.admission.charge import Charge, new_payer
from outrider.gateway.admission.limit_store import LimitReached
from outrider.gateway.admission.reservation import Admission
from outrider.gateway.generation.choices import merged
from outrider.gateway.generation.flight import Flight
from outrider.gateway.generation.ledger import Key, Ledger, Record
from outrider.gateway.generation.ledger_entries import Entries
from outrider.gateway.generation.recall import Recall
from outrider.gateway.generation.takeovers import Handover
from outrider.gateway.requests.attempts import persist
from outrider.gateway.routing import Routes
from outrider.gateway.routing.condemned import Condemned
from outrider.gateway.routing.verifiers import Job, Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.sharing import Pool, Reader
from outrider.gateway.streams.stream import TokenStream
from outrider.mesh.errors import AlreadyExists, NotFound, OutriderError, Unavailable
from outrider.mesh.service import Mesh
from outrider.wire.frames import Finish, Frame

S = TypeVar("S", TokenStream, TokenStream | Reader)

_HANDOVER_S = 5.0
"""For so long a gateway that takes a stream over waits for the places that it held at another."""

_CANCELLED = "the stream was cancelled"


class Flights:
    """Begins, takes over, keeps and ends flights.

    While one is here, its verifiers are told that it is wanted; what no gateway wants any more they drop by themselves.
    """

    def __init__(self, mesh: Mesh, settings: GatewaySettings) -> None:
        self._bills = Bills(mesh.bus, settings.replay_s)
        self._bus, self._tasks, self._settings = mesh.bus, mesh.tasks, settings
        routes = Routes(settings)
        routes.attach(mesh)
        self._condemned = Condemned(mesh.bus)
        self.verifiers = Verifiers(
            mesh.registry,
            mesh.tasks,
            self._on_lost,
            routes,
            self._condemned,
            lease_s=settings.lease_s,
            submit_s=settings.submit_s,
            heartbeat_s=settings.heartbeat_s,
        )
        self._ledger = Ledger(mesh.bus, settings)
        self._entries, self._recall = Entries(self._ledger, mesh.tasks), Recall(mesh.registry)
        self._handover = Handover(mesh.bus, mesh.instance, self._on_taken)
        self._flights: set[Flight] = set()
        self._pool = Pool(settings, mesh.bus, self._stream)
        metrics.streams.set_function(lambda: len(self))
        metrics.ledger_failing.set_function(lambda: self.trouble is not None)
        metrics.waiting_records.set_function(lambda: len(self._entries) + sum(each.untold for each in self._flights))
        mesh.bus.on_change(self._on_bus)
        mesh.tasks.spawn(self._renew_for_ever(), "leases")
        mesh.tasks.spawn(self._tend_for_ever(), "ledger")

    @property
    def trouble(self) -> str | None:
        """Why records of streams cannot be written at the moment; None where they can."""
        return self._ledger.trouble

    def __len__(self) -> int:
        return sum(len(flight.streams) for flight in self._flights)

    async def open(self) -> None:
        """Has frames kept from now on, and listens for other gateways; `Unavailable` where there can be no bills."""
        if self._settings.auth == "keys":
            await self._bills.open()
        await self._handover.open()
        await self._condemned.open()
        await self._ledger.open()

    async def begin(
        self, key: Key, jobs: Sequence[Job], record: Record, admission: Admission, *, resumable: bool
    ) -> Flight:
        """Reserves and submits the ``jobs`` of which ``record`` tells.

        Errors are those of `Admission.reserve` and of `TokenStream.open`.
        """
        charge = Charge(admission, self._bills, key.bill, FIRST, shared=resumable)
        prompts = sum(len(job.prompt) for job in jobs[:: record.answers])
        await charge.begin(prompts, [job.sampling.max_tokens for job in jobs])
        flight = Flight(key, record, charge, resumable=resumable)
        # whoever reads another request's answer has no verifier that keeps the record
        self._add(flight, jobs, self._stream if resumable and self.trouble else self._pool.stream)
        try:
            await _all([stream.open() for stream in flight.streams])
            await self._entries.written(flight)
        except BaseException:
            charge.waive()
            await self.end(flight)
            raise
        return flight

    async def claim(self, key: Key) -> None:
        """Has nobody else begin a request of a name that its asker chose; `AlreadyExists` where somebody has.

        Without a ledger only those in flight here are known.
        """
        if any(flight.key == key for flight in self._flights):
            raise AlreadyExists("there is a request of this id already", param="request_id")
        with suppress(Unavailable):
            await self._ledger.claim(key)

    async def unclaim(self, key: Key) -> None:
        """Frees the name of a request that could not be begun."""
        with suppress(Unavailable):
            await self._ledger.forget(key, [])

    async def find(self, key: Key) -> tuple[Record, list[str]]:
        """A stream as the ledger knows it, and the verifiers of its choices; else as they, or we, know it.

        What we are about to write there is waited for. `NotFound` where nothing is known, `Unavailable` where there is
        no ledger or it may lack the record.
        """
        return (await self._find(key))[:2]

    async def _find(self, key: Key) -> tuple[Record, list[str], bool]:
        """As `find`, and whether the ledger has it."""
        await asyncio.gather(*(flight.writing for flight in self._flights if flight.key == key and flight.writing))
        try:
            return *(await self._ledger.find(key)), True
        except (NotFound, Unavailable) as missing:
            found = self._entries.find(key) or await self._recall.find(key)
            if found is not None:
                metrics.recalls.inc()
                return *found, False
            if isinstance(missing, Unavailable) or self.trouble is None:
                raise
            why = f"the stream is not known, and may be one that could not be recorded: {self.trouble}"
            raise Unavailable(why, retry_after=1.0) from None

    async def resume(self, key: Key, record: Record, verifiers: Sequence[str], admission: Admission) -> Flight:
        """Takes over a stream that `find` found, whichever gateway began it, from its first token on.

        Reserves what is left of it. `Unavailable` where the log of its tokens cannot be read, `NotFound` where it was
        ended before we listened, `LimitReached`.
        """
        charge = Charge(admission, self._bills, key.bill, new_payer(), shared=True)
        flight = Flight(key, record, charge, resumable=True, entered=True)
        streams = self._add(flight, record.jobs(key.request, admission.caller), self._stream)
        pairs = zip(streams, map(self.verifiers.find, verifiers), strict=True)
        try:
            await _all([stream.attach(self._logged, member) for stream, member in pairs])
            *_, flight.entered = await self._find(key)
            await flight.take()
            await self._reserve(flight)
        except BaseException:
            await self.end(flight)
            raise
        self._own(flight)
        self._renew([flight])
        if not flight.entered:
            self._entries.write(flight)
        metrics.replays.inc()
        return flight

    async def log(self, key: Key, record: Record) -> list[Frame]:
        """What was kept of the frames of a stream with one choice; `Unavailable` where that cannot be read."""
        return await self._logged(record.jobs(key.request, Caller(tenant=key.tenant))[0])

    async def _logged(self, job: Job) -> list[Frame]:
        try:
            return await self._ledger.frames(job)
        except Unavailable:
            return await self._recall.frames(job)

    def runs(self, key: Key, verifier: str) -> bool:
        """Whether a stream goes on here, or may at the ``verifier`` that was written to have it."""
        return any(flight.key == key for flight in self._flights) or self.verifiers.find(verifier) is not None

    async def kept(self, flight: Flight) -> bool:
        """Whether the ledger knows a flight, once it was told."""
        if flight.writing is not None:
            await asyncio.shield(flight.writing)
        return flight.entered

    async def stop(self, key: Key, record: Record, verifiers: Sequence[str]) -> None:
        """Ends a stream that `find` found for all its readers; `Unavailable` where that cannot be written."""
        for job, instance in zip(record.jobs(key.request, Caller(tenant=key.tenant)), verifiers, strict=True):
            end = Frame(job.request_id, 0, [], [], [], Finish.CANCELLED, error=_CANCELLED)
            await self._ledger.end(job, end)
            member = self.verifiers.find(instance)
            self.verifiers.cancel(job, [member] if member else [], _CANCELLED)

    async def cancel(self, key: Key) -> None:
        """Ends a stream for all its readers, and forgets it; errors as with `find`."""
        record, verifiers = await self.find(key)
        await self.stop(key, record, verifiers)
        jobs = record.jobs(key.request, Caller(tenant=key.tenant))
        self._entries.forget(key)
        await self._recall.forget(jobs, _CANCELLED)
        await self._ledger.forget(key, jobs)

    async def leave(self, flight: Flight) -> None:
        """Ends a flight whose reader is gone; one that was asked to goes on, in the background or for ``linger_s``."""
        if (flight.record.lingers or flight.record.background) and flight.running and flight.owned:
            flight.lingering = self._tasks.spawn(self._linger(flight), "linger")
        else:
            await self.end(flight)

    async def end(self, flight: Flight) -> None:
        """Closes a flight, wherever it stands, and charges it; its verifiers are told, unless another has taken it."""
        self._flights.discard(flight)
        self._entries.left(flight)
        await flight.close()
        if not flight.charge.shared:
            return await flight.settle()
        flight.settling = flight.settling or self._tasks.spawn(flight.settle(), "charge")
        await asyncio.shield(flight.settling)

    async def _reserve(self, flight: Flight) -> None:
        """Where the places are taken, perhaps by the very streams, who has these is told to let go of them."""
        try:
            await flight.reserve()
        except LimitReached as refusal:
            if refusal.standing.demand.period_s:
                raise
            self._own(flight)
            await persist(flight.reserve, _HANDOVER_S, (LimitReached,))

    def _own(self, flight: Flight) -> None:
        """How it ends is this flight's business now: all others are told."""
        flight.owned = True
        self._handover.take(flight.key)
        self._on_taken(flight.key, flight)

    def _add(self, flight: Flight, jobs: Iterable[Job], make: Callable[[Job, Callable[[], None]], S]) -> list[S]:
        known = weakref.ref(flight)  # its streams hold what is called: held by them, it would wait for a collection

        def settled() -> None:
            if (placed := known()) is not None:
                self._on_settled(placed)

        if flight.resumable:
            rest = flight.record.rest
            jobs = [msgspec.structs.replace(job, stream_id=flight.key.request, record=rest) for job in jobs]
        streams = [make(job, settled) for job in jobs]
        flight.streams = streams
        self._flights.add(flight)
        return streams

    def _stream(self, job: Job, settled: Callable[[], None]) -> TokenStream:
        return TokenStream(job, self.verifiers, self._bus, self._settings, settled)

    def _on_settled(self, flight: Flight) -> None:
        flight.owned = True
        self._entries.write(flight)

    async def _linger(self, flight: Flight) -> None:
        seconds = self._settings.replay_s if flight.record.background else self._settings.linger_s
        with suppress(TimeoutError, OutriderError):
            async with asyncio.timeout(seconds), aclosing(merged(flight.streams)) as batches:
                async for _ in batches:
                    pass
        await self.end(flight)

    def _on_taken(self, key: Key, taker: Flight | None = None) -> None:
        """Somebody else reads a request of ours: how it ends is his business now."""
        for flight in [each for each in self._flights if each.key == key and each is not taker]:
            flight.owned = False
            if flight.lingering is not None:
                flight.lingering.cancel()
                self._tasks.spawn(self.end(flight), "hand-over")

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            self._renew(self._flights)
            recorded, self._entries.recorded = self._entries.recorded, []
            self.verifiers.recorded(recorded)

    async def _tend_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            await self._ledger.tend()
            self._entries.rest(self._flights)

    def _renew(self, flights: Iterable[Flight]) -> None:
        streams = [stream for flight in flights for stream in flight.streams]
        self.verifiers.renew([lease for stream in streams if (lease := stream.lease) is not None])

    def _on_lost(self, instance: str) -> None:
        self._follow("lost", instance)

    def _on_bus(self, connected: bool) -> None:
        if connected:
            self._tasks.spawn(self._reopen(), "ledger")
        else:
            self._ledger.fail(Unavailable("NATS is not connected"))
            self._follow("disconnected")

    async def _reopen(self) -> None:
        await self._ledger.tend()
        self._entries.rest(self._flights)

    def _follow(self, reason: str, instance: str | None = None) -> None:
        for stream in [stream for flight in self._flights for stream in flight.streams]:
            if instance in (None, stream.verifier):
                stream.follow(reason)


async def _all(openings: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first failure ends the others and is raised as it is."""
    if len(openings) == 1:
        return await openings[0]
    tasks = [asyncio.ensure_future(opening) for opening in openings]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
