"""Telling the ledger of the flights that are here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
from outrider.gateway.attempts import persist
from outrider.gateway.flight import Flight
from outrider.gateway.ledger import Ledger
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_TOLD_S = 1.0
"""For so long the first token of a stream waits for the ledger, where there is one: nobody is told what could be lost
with us."""

_log = get_logger("ledger")


class Entries:
    """Writes who has a flight, and once what it is. What the ``ledger`` misses while it is away is told by `rest`."""

    def __init__(self, ledger: Ledger, tasks: Tasks) -> None:
        self._ledger, self._tasks = ledger, tasks

    def write(self, flight: Flight) -> None:
        """Begins to tell the ledger of a flight, if it is to be there and a verifier has it."""
        flight.told = False
        if flight.resumable and flight.placed:
            flight.writing = self._tasks.spawn(self._write(flight, flight.writing), "ledger")

    async def written(self, flight: Flight) -> None:
        """Returns when the ledger knows a flight, or takes too long."""
        if flight.writing is not None:
            await asyncio.wait({flight.writing}, timeout=_TOLD_S)

    def rest(self, flights: Iterable[Flight]) -> None:
        """Begins to tell the ledger what it could not be told of ``flights``."""
        if self._ledger.is_open:
            for flight in flights:
                if not flight.told and (flight.writing is None or flight.writing.done()):
                    self.write(flight)

    async def _write(self, flight: Flight, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        try:
            await persist(lambda: self._tell(flight), _TOLD_S if self._ledger.is_open else 0.0, (Unavailable,))
        except Unavailable as error:
            _log.info("a stream cannot be resumed for now", request=flight.key.request, why=error.message)

    async def _tell(self, flight: Flight) -> None:
        holders = [stream.holder for stream in flight.streams]
        if flight.entered:
            await self._ledger.place(flight.key, holders)
        else:
            await self._ledger.enter(flight.key, msgspec.structs.replace(flight.record, verifiers=holders))
            flight.entered = True
        flight.told = holders == [stream.holder for stream in flight.streams]
