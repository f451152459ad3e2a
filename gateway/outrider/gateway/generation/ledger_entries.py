"""Telling the ledger of the flights that are here."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

import msgspec
from outrider.gateway import metrics
from outrider.gateway.generation.flight import Flight
from outrider.gateway.generation.ledger import Key, Ledger, Record
from outrider.gateway.requests.attempts import persist
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_TOLD_S = 1.0
"""For so long the first token of a stream waits for the ledger, where there is one: nobody is told what could be lost
with us."""
_LEFT_BYTES = 64 << 20
"""Bytes of records that wait for the ledger when their flights have ended."""

_log = get_logger("ledger")


class Entries:
    """Writes who has a flight, and once what it is. What the ``ledger`` misses while it is away is told by `rest`.

    ``recorded`` are the requests that the ledger has come to know since they were taken from there, each with its
    verifier.
    """

    def __init__(self, ledger: Ledger, tasks: Tasks) -> None:
        self._ledger, self._tasks = ledger, tasks
        self._left: OrderedDict[Key, Record] = OrderedDict()
        self._left_bytes = 0
        self.recorded: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self._left)

    def write(self, flight: Flight) -> None:
        """Begins to tell the ledger of a flight, if it is to be there and a verifier has it."""
        flight.told = False
        if flight.resumable and flight.placed:
            if self._ledger.trouble is not None:
                return _miss(flight, self._ledger.trouble)
            flight.writing = self._tasks.spawn(self._write(flight, flight.writing), "ledger")

    async def written(self, flight: Flight) -> None:
        """Returns when the ledger knows a flight, or takes too long."""
        if flight.writing is not None:
            await asyncio.wait({flight.writing}, timeout=_TOLD_S)

    def rest(self, flights: Iterable[Flight]) -> None:
        """Begins to tell the ledger what it could not be told of ``flights``, and of those that have ended since."""
        if self._ledger.trouble is None:
            for flight in flights:
                if not flight.told and (flight.writing is None or flight.writing.done()):
                    self.write(flight)
            if self._left:
                self._tasks.spawn(self._write_left(), "ledger")

    def left(self, flight: Flight) -> None:
        """Keeps the record of a flight that ends here until the ledger has it."""
        if flight.resumable and flight.placed and not flight.entered:
            self._tasks.spawn(self._leave(flight), "ledger")

    def find(self, key: Key) -> tuple[Record, list[str]] | None:
        """The record of a flight that has ended here, and its verifiers, while it waits for the ledger."""
        record = self._left.get(key)
        return None if record is None else (record, record.verifiers)

    def forget(self, key: Key) -> None:
        """Has the ledger not be told of a flight that has ended."""
        if (record := self._left.pop(key, None)) is not None:
            self._left_bytes -= _size(record)

    async def _leave(self, flight: Flight) -> None:
        if flight.writing is not None:
            await asyncio.wait({flight.writing})
        if flight.entered or flight.ended:
            return
        self.forget(flight.key)
        record = self._left[flight.key] = _held(flight)
        self._left_bytes += _size(record)
        while self._left_bytes > _LEFT_BYTES:
            self.forget(next(iter(self._left)))
            metrics.dropped_records.inc()

    async def _write_left(self) -> None:
        for key, record in list(self._left.items()):
            try:
                await self._ledger.enter(key, record)
            except Unavailable as error:
                return self._ledger.fail(error)
            if self._left.get(key) is record:
                self.forget(key)

    async def _write(self, flight: Flight, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        try:
            await persist(lambda: self._tell(flight), _TOLD_S, (Unavailable,))
        except Unavailable as error:
            self._ledger.fail(error)
            _miss(flight, error.message)

    async def _tell(self, flight: Flight) -> None:
        record = _held(flight)
        if flight.entered:
            await self._ledger.place(flight.key, record.verifiers)
        else:
            await self._ledger.enter(flight.key, record)
            flight.entered = True
        requests = [stream.job.request_id for stream in flight.streams]
        self.recorded += zip(requests, record.verifiers, strict=True)
        flight.told = record.verifiers == [stream.holder for stream in flight.streams]


def _held(flight: Flight) -> Record:
    """The record of a flight as its verifiers have it now."""
    return msgspec.structs.replace(flight.record, verifiers=[stream.holder for stream in flight.streams])


def _miss(flight: Flight, why: str) -> None:
    if not flight.missed:
        flight.missed = True
        _log.info("a stream is not recorded for now", request=flight.key.request, why=why)
        metrics.unwritten.inc()


def _size(record: Record) -> int:
    return len(record.prompt) + len(record.shape) + len(record.sampling)
