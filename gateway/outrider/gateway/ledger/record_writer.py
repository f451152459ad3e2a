"""Writes the records of flights to the ledger, at once or when the ledger can be written again."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
from outrider.gateway import metrics
from outrider.gateway.ledger.ledger import Ledger
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.stream.answer import AnswerStream
from outrider.mesh.attempts import persist
from outrider.mesh.errors import Cancelled, Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_WRITE_S = 1.0
"""Seconds that a write is tried, and that a stream's first token waits for it: a client must not read tokens of a
stream that could not be resumed if this gateway died."""
_WAITING_BYTES = 64 << 20
"""Most bytes of records of ended flights that wait for the ledger."""

_log = get_logger("ledger")


class RecordWriter:
    """The records that a gateway writes: those under way, and those of ended flights that the ledger still lacks."""

    def __init__(self, ledger: Ledger, tasks: Tasks) -> None:
        self.ledger, self._tasks = ledger, tasks
        self._waiting: OrderedDict[Key, Record] = OrderedDict()
        self._waiting_bytes = 0
        self._confirmed: list[tuple[str, str]] = []
        self._writes: dict[asyncio.Task[None], Key] = {}

    def __len__(self) -> int:
        """Records of ended flights that wait for the ledger."""
        return len(self._waiting)

    def spawn(self, write: Coroutine[Any, Any, None], key: Key) -> asyncio.Task[None]:
        """Runs a ``write`` of the record of ``key`` in the background."""
        task = self._tasks.spawn(write, "ledger")
        self._writes[task] = key
        task.add_done_callback(self._writes.pop)
        return task

    async def wait_written(self, key: Key) -> None:
        """Returns when the writes for ``key`` that are under way have ended."""
        if writes := {task for task, written in self._writes.items() if written == key}:
            await asyncio.wait(writes)

    def confirm(self, request_id: str, verifier: str) -> None:
        """Notes that the ledger has the record of a request, of which ``verifier`` keeps a copy."""
        self._confirmed.append((request_id, verifier))

    def take_confirmed(self) -> list[tuple[str, str]]:
        """The pairs given to `confirm` since the last call."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def find(self, key: Key) -> Record | None:
        """The record of an ended flight that waits for the ledger."""
        return self._waiting.get(key)

    def keep(self, key: Key, record: Record) -> None:
        """Keeps the record of an ended flight until the ledger has it; drops the oldest if there are too many."""
        self.drop(key)
        self._waiting[key] = record
        self._waiting_bytes += _size(record)
        while self._waiting_bytes > _WAITING_BYTES:
            self.drop(next(iter(self._waiting)))
            metrics.dropped_records.inc()

    def drop(self, key: Key) -> None:
        """Drops the record of an ended flight."""
        if (record := self._waiting.pop(key, None)) is not None:
            self._waiting_bytes -= _size(record)

    async def erase(self, tenant: str) -> None:
        """Drops the records of a tenant that wait, and waits for the writes under way."""
        for key in [key for key in self._waiting if key.tenant == tenant]:
            self.drop(key)
        if writes := {task for task, key in self._writes.items() if key.tenant == tenant}:
            await asyncio.wait(writes)

    def expire(self) -> None:
        """Drops records of ended flights that are older than the ledger keeps them."""
        oldest = time.time() - self.ledger.keep_s
        for key in [key for key, record in self._waiting.items() if record.created < oldest]:
            self.drop(key)

    def write_waiting(self) -> None:
        """Writes the records of ended flights, in the background."""
        if self._waiting:
            self._tasks.spawn(self._write_waiting(), "ledger")

    async def _write_waiting(self) -> None:
        for key, record in list(self._waiting.items()):
            try:
                await self.ledger.enter(key, record)
            except Unavailable as error:
                return self.ledger.fail(error)
            if self._waiting.get(key) is record:
                self.drop(key)


class Recording:
    """Keeps the ledger's record of one flight up to date, if the flight is ``resumable``.

    Attributes:
        recorded: Whether the ledger has the record.
    """

    def __init__(
        self,
        key: Key,
        record: Record,
        streams: Sequence[AnswerStream],
        writer: RecordWriter,
        *,
        resumable: bool,
        recorded: bool,
    ) -> None:
        self.key, self.record, self.recorded = key, record, recorded
        self._streams, self._writer, self.resumable = streams, writer, resumable
        self._current, self._miss_reported = recorded, False
        self._task: asyncio.Task[None] | None = None

    @property
    def behind(self) -> bool:
        """Whether the ledger lacks the record or a verifier's name, and no write is under way."""
        return self._due and not self._current and (self._task is None or self._task.done())

    def mark_missing(self) -> None:
        """Notes that the ledger does not have the record, although the flight was found."""
        self.recorded = False

    def write(self) -> None:
        """Writes the record, or the new verifiers of a recorded flight, in the background.

        Nothing is written before each choice has a verifier, or while the ledger cannot be written.
        """
        self._current = False
        if self._due:
            if self._writer.ledger.trouble is not None:
                return self._report_miss(self._writer.ledger.trouble)
            self._task = self._writer.spawn(self._write(self._task), self.key)

    async def wait_written(self) -> None:
        """Returns when the write under way has ended, or after a second."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_WRITE_S)

    async def wait_recorded(self) -> bool:
        """Waits for the write under way; whether the ledger has the record."""
        if self._task is not None:
            await asyncio.shield(self._task)
        return self.recorded

    def close(self) -> None:
        """Hands a record that is not written yet to the writer, unless the flight was cancelled."""
        if self._due and not self.recorded:
            self._writer.spawn(self._keep(self._task), self.key)

    @property
    def _due(self) -> bool:
        """Whether the ledger ought to have the record: the flight is resumable, and each choice has a verifier."""
        return self.resumable and all(stream.placed for stream in self._streams)

    async def _keep(self, write: asyncio.Task[None] | None) -> None:
        if write is not None:
            await asyncio.wait({write})
        if not self.recorded and not any(isinstance(stream.failed, Cancelled) for stream in self._streams):
            self._writer.keep(self.key, self._present())

    async def _write(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        try:
            await persist(self._write_once, _WRITE_S, (Unavailable,))
        except Unavailable as error:
            self._writer.ledger.fail(error)
            self._report_miss(error.message)

    async def _write_once(self) -> None:
        record = self._present()
        if self.recorded:
            await self._writer.ledger.place(self.key, record.verifiers)
        else:
            await self._writer.ledger.enter(self.key, record)
            self.recorded = True
        for stream, verifier in zip(self._streams, record.verifiers, strict=True):
            self._writer.confirm(stream.job.request_id, verifier)
        self._current = record.verifiers == self._present().verifiers

    def _present(self) -> Record:
        """The record with the verifiers that have the choices now."""
        return msgspec.structs.replace(self.record, verifiers=[stream.holder for stream in self._streams])

    def _report_miss(self, why: str) -> None:
        if not self._miss_reported:
            self._miss_reported = True
            _log.info("a stream is not recorded for now", request=self.key.request, why=why)
            metrics.unwritten.inc()


def _size(record: Record) -> int:
    return len(record.prompt) + len(record.shape) + len(record.sampling)
