"""The ledger of streamed requests: their records and frames, kept in JetStream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import msgspec
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.routing.job import Job
from outrider.mesh.bus import Bus, Journal, JournalConfig
from outrider.mesh.errors import AlreadyExists, NotFound, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.wire.frames import Frame, decode_frame, encode_frame, token_subject
from outrider.wire.subjects import record_subject

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings

_PART = 512 << 10
"""Bytes of a record in one message: the record of a long prompt is larger than a message may be."""
_AT, _CLAIM, _GONE = "at", "claim", "gone"
_WRITTEN_AGAIN_S = 5.0
"""Seconds in which gateways come back to a broker that was away, and write the records that it lacks; and in which a
gateway that has just joined hears of all verifiers."""

_log = get_logger("ledger")
_encode_verifiers = msgspec.msgpack.Encoder().encode
_decode_verifiers = msgspec.msgpack.Decoder(list[str]).decode


class Ledger:
    """Keeps records and frames for ``replay_s`` seconds.

    Running streams do not depend on it: without JetStream only calls that read or write it raise `Unavailable`.

    Attributes:
        keep_s: Seconds for which records are kept.
        trouble: Why the ledger cannot be written at the moment, in a few words; None if it can.
    """

    def __init__(self, bus: Bus, settings: GatewaySettings) -> None:
        bounds = settings.replay_s, settings.replay_bytes
        self.keep_s = settings.replay_s
        records = JournalConfig("outrider-requests", record_subject("*", "*", "*"), *bounds, last_only=True)
        self._records = Journal(bus, records)
        self._frames = Journal(bus, JournalConfig("outrider-tokens", token_subject("*", "*"), *bounds))
        self._is_open = False
        self.trouble: str | None = "the broker was not asked yet"
        self._lacks_until = 0.0

    async def open(self) -> None:
        """Creates the journals; logs a warning if the broker cannot keep them."""
        try:
            if await self._records.open():
                self._lacks_until = inf  # The broker may have been away just now, before this gateway started.
            await self._frames.open()
            self._is_open = True
        except Unavailable as error:
            self.fail(error)
        else:
            self._recover()

    async def tend(self) -> None:
        """Checks that the broker keeps frames and records, and repairs the journals if it can."""
        if not self._is_open:
            return await self.open()
        try:
            await self._records.tend()
            await self._frames.tend()
        except Unavailable as error:
            self.fail(error)
        else:
            self._recover()

    @property
    def why_lacking(self) -> str | None:
        """Why records of running streams may be missing, in a few words; None if there is no reason to think so."""
        if self.trouble is not None or time.monotonic() >= self._lacks_until:
            return self.trouble
        return "the broker was away or this gateway has just joined, and records may be on their way"

    def fail(self, error: Unavailable) -> None:
        """Sets `trouble` until `tend` finds that the broker takes records again."""
        if self.trouble != error.message:
            _log.warning("streams cannot be resumed", why=error.message)
        self.trouble, self._lacks_until = error.message, inf

    def _recover(self) -> None:
        self.trouble = None
        if self._lacks_until == inf:
            self._lacks_until = time.monotonic() + _WRITTEN_AGAIN_S

    async def claim(self, key: Key) -> None:
        """Reserves the id of a request; raises `AlreadyExists` if it is taken."""
        try:
            await self._records.add(key.subject(_CLAIM), b"", first=True)
        except AlreadyExists:
            raise AlreadyExists("there is a request of this id already", param="request_id") from None

    async def enter(self, key: Key, record: Record) -> None:
        """Writes the record of a new request, verifiers included."""
        data = record.encode()
        parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
        await asyncio.gather(
            *(self._records.add(key.subject(f"{place}-{len(parts)}"), part) for place, part in enumerate(parts))
        )

    async def place(self, key: Key, verifiers: Sequence[str]) -> None:
        """Writes the instance of each choice's present verifier; the request has a record already."""
        await self._records.add(key.subject(_AT), _encode_verifiers(verifiers))

    async def find(self, key: Key) -> tuple[Record, list[str]]:
        """The record of a request, and the instance of each choice's verifier, or ""; raises `NotFound`."""
        messages = dict(await self._records.read(key.subject("*")))
        if key.subject(_GONE) in messages:
            raise _unknown()
        at = messages.pop(key.subject(_AT), None)
        messages.pop(key.subject(_CLAIM), None)
        count = len(messages)
        parts = [messages.get(key.subject(f"{place}-{count}"), b"") for place in range(count)]
        if not all(parts) or not parts:
            raise _unknown()
        record = Record.decode(b"".join(parts))
        return record, _decode_verifiers(at) if at is not None else record.verifiers or [""] * record.choices

    async def frames(self, job: Job) -> list[Frame]:
        """The frames of a job, in the order in which they were published."""
        return [decode_frame(data) for _, data in await self._frames.read(job.subject)]

    async def end(self, job: Job, frame: Frame) -> None:
        """Publishes the last frame of a job, and returns when the broker keeps it."""
        await self._frames.add(job.subject, encode_frame(frame))

    async def erase(self, tenant: str, before: float) -> tuple[int, int]:
        """Overwrites and deletes a tenant's records and frames that are older than ``before``; numbers of messages."""
        records = await self._records.wipe(record_subject(tenant, "*", "*"), before)
        return records, await self._frames.wipe(token_subject(tenant, "*"), before)

    async def forget(self, key: Key, jobs: list[Job]) -> None:
        """Deletes a request and its frames."""
        if not await self._records.forget(key.subject("*")):
            await self._records.add(key.subject(_GONE), b"")
        for subject in {subject for job in jobs for subject in (job.subject, job.reader_subject)}:
            await self._frames.forget(subject)


def _unknown() -> NotFound:
    return NotFound("there is no such stream: it was never begun, is too old, or was cancelled", param="id")
