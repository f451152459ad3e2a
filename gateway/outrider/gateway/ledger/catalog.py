"""The streams of the mesh that a client can come back to: how to find, read, cancel and forget them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from outrider.gateway import metrics
from outrider.gateway.admission.caller import Caller
from outrider.gateway.ledger.ledger import Ledger
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.ledger.record_writer import RecordWriter
from outrider.gateway.ledger.verifier_records import VerifierRecords
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.replay import until_filtered
from outrider.mesh.errors import NotFound, Unavailable
from outrider.mesh.service import Mesh
from outrider.wire.frames import Finish, Frame

_CANCELLED = "the stream was cancelled"


class StoredStream(msgspec.Struct, frozen=True):
    """A stream: its record, the instance of each choice's verifier, or "", and whether the ledger has the record."""

    record: Record
    verifiers: list[str]
    in_ledger: bool


class StreamCatalog:
    """Finds streams in the ledger first, then among the records that wait for the ledger, then at verifiers.

    ``notify`` gets the subject and the last frame of an answer that ends for all its readers.
    """

    def __init__(
        self, mesh: Mesh, settings: GatewaySettings, verifiers: Verifiers, notify: Callable[[str, Frame], None]
    ) -> None:
        self.ledger = Ledger(mesh.bus, settings)
        self.writer = RecordWriter(self.ledger, mesh.tasks)
        self._verifiers, self._at_verifiers = verifiers, VerifierRecords(mesh.registry)
        self._notify = notify

    @property
    def trouble(self) -> str | None:
        """Why records cannot be written at the moment; None if they can."""
        return self.ledger.trouble

    async def open(self) -> None:
        """Makes the broker keep records and frames."""
        await self.ledger.open()

    async def claim(self, key: Key) -> None:
        """Reserves an id that a client chose; raises `AlreadyExists` if it is taken. Does nothing without a ledger."""
        with suppress(Unavailable):
            await self.ledger.claim(key)

    async def unclaim(self, key: Key) -> None:
        """Frees the id of a request that could not be begun."""
        with suppress(Unavailable):
            await self.ledger.forget(key, [])

    async def find(self, key: Key) -> tuple[Record, list[str]]:
        """The record of a stream and the instance of each choice's verifier, or ""; raises as `locate`."""
        stored = await self.locate(key)
        return stored.record, stored.verifiers

    async def locate(self, key: Key) -> StoredStream:
        """Finds a stream, after the writes of this gateway that are under way.

        Raises `NotFound` if there is no such stream, and `Unavailable` if there may be one: the ledger cannot be read,
        or may lack the records of a time in which it could not be written.
        """
        await self.writer.wait_written(key)
        try:
            return StoredStream(*await self.ledger.find(key), in_ledger=True)
        except (NotFound, Unavailable) as missing:
            if (stored := await self._find_elsewhere(key)) is not None:
                metrics.recalls.inc()
                return stored
            if isinstance(missing, Unavailable) or (lacking := self.ledger.why_lacking) is None:
                raise
            why = f"the stream is not known, and may be one that could not be recorded: {lacking}"
            raise Unavailable(why, retry_after=1.0) from None

    async def frames(self, job: Job) -> list[Frame]:
        """The logged frames of a job; raises `Unavailable` if neither the ledger nor a verifier can be read."""
        try:
            return until_filtered(await self.ledger.frames(job))
        except Unavailable:
            return await self._at_verifiers.frames(job)

    async def stop(self, key: Key, record: Record, verifiers: Sequence[str]) -> None:
        """Ends a stream for all its readers; raises `Unavailable` if its end cannot be written."""
        for job, instance in zip(_jobs(key, record), verifiers, strict=True):
            end = Frame(job.request_id, 0, [], [], [], Finish.CANCELLED, error=_CANCELLED)
            await self.ledger.end(job, end)
            self._notify(job.subject, end)
            member = self._verifiers.find(instance)
            self._verifiers.cancel(job, [member] if member else [], _CANCELLED)

    async def cancel(self, key: Key) -> None:
        """Ends a stream for all its readers and deletes its record; raises as `locate`."""
        record, verifiers = await self.find(key)
        await self.stop(key, record, verifiers)
        jobs = _jobs(key, record)
        self.writer.drop(key)
        await self._at_verifiers.forget(jobs, _CANCELLED)
        await self.ledger.forget(key, jobs)

    async def _find_elsewhere(self, key: Key) -> StoredStream | None:
        if (record := self.writer.find(key)) is not None:
            return StoredStream(record, record.verifiers, in_ledger=False)
        recalled = await self._at_verifiers.find(key)
        return None if recalled is None else StoredStream(*recalled, in_ledger=False)


def _jobs(key: Key, record: Record) -> list[Job]:
    return record.jobs(key.request, Caller(tenant=key.tenant))
