"""The audit log: one JSON object a line for each event of security, without users' text, keys or secrets.

Until `start_audit` has been given a file, `audit` does nothing. A thread writes the lines, so that no caller waits for
a disk.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import msgspec
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry.line_file import LineFile
from outrider.mesh.telemetry.logs import get_logger
from outrider.mesh.telemetry.metrics import counter

Event = Literal[
    "authentication_refused",
    "permission_refused",
    "limit_reached",
    "locked_out",
    "tenant_created",
    "tenant_changed",
    "key_created",
    "key_rotated",
    "key_revoked",
    "admin_call",
    "certificate_renewed",
    "stream_revoked",
    "stream_filtered",
    "content_erased",
    "abuse_suspected",
]
Outcome = Literal["done", "refused", "failed"]

REPEAT_S = 60.0
"""Seconds for which refusals like one that was written are counted, and then written as one line."""
MOST_WAITING = 10_000
"""Most events that wait for the file; later ones are lost, and counted."""
_MOST_KINDS = 10_000
_TURN_S = 1.0
_CLOSE_S = 2.0
_LONGEST = 500

_log = get_logger("audit")
_events = counter("audit_events", "Events for the audit log.", ["event"])
_lost = counter("audit_lost_events", "Events that did not reach the audit log.")
_failures = counter("audit_failed_writes", "Attempts to write to the audit log that failed; they are repeated.")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        time: in UTC, as RFC 3339 writes it.
        actor: who did it: ``key ID``, ``token SUBJECT``, ``certificate URI`` or ``user NAME``; of a refused request who
            it claims to be, or nothing.
        door: where it was done: ``http``, ``grpc``, ``nats``, ``admin``, ``mesh`` or ``cli``.
        subject: what was changed.
        count: events that the line stands for: refusals that repeat within `REPEAT_S` seconds make one line.
        serial: number of the line in its process; a gap tells of lost lines.
    """

    time: str
    event: Event
    outcome: Outcome
    actor: str
    tenant: str
    door: str
    address: str
    subject: str
    reason: str
    request: str
    count: int
    service: str
    instance: str
    serial: int

    @property
    def kind(self) -> tuple[str, ...]:
        """What refusals that repeat have in common."""
        return self.event, self.actor, self.tenant, self.door, self.address, self.subject


class AuditLog:
    """Writes records to ``file`` in a thread of its own, until `close`. For any thread.

    A write that fails is repeated every second, and logged once; records wait meanwhile.
    """

    def __init__(self, file: LineFile, *, most: int = MOST_WAITING, repeat_s: float = REPEAT_S) -> None:
        self._file, self._repeat_s = file, repeat_s
        self._waiting: queue.Queue[Record | None] = queue.Queue(most)
        self._repeats: dict[tuple[str, ...], tuple[float, Record | None]] = {}
        self._serials = itertools.count(1)
        self._closing = threading.Event()
        self._failing, self._lost = False, 0
        self._encode = msgspec.json.Encoder().encode
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def note(self, record: Record) -> None:
        """Has ``record`` written; a record for which there is no room is counted as lost."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            if not self._lost:
                _log.error("the audit log loses events: too many wait to be written", waiting=self._waiting.qsize())
            self._lose(1)

    def close(self, wait_s: float = _CLOSE_S) -> int:
        """Writes what waits, for at most ``wait_s`` seconds; returns how many events were lost since the start."""
        self._closing.set()
        with suppress(queue.Full):
            self._waiting.put(None, timeout=wait_s)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._lose(self._waiting.qsize())
        return self._lost

    def _run(self) -> None:
        while True:
            try:
                record = self._waiting.get(timeout=_TURN_S)
            except queue.Empty:
                self._end_repeats(time.monotonic())
                continue
            if record is None:
                return self._end_repeats(float("inf"))
            self._take(record)
            self._end_repeats(time.monotonic())

    def _take(self, record: Record) -> None:
        """Writes a record, unless it is a refusal like one that was written a moment ago."""
        kind = record.kind
        if record.outcome != "refused":
            self._write(record)
        elif (repeats := self._repeats.get(kind)) is not None:
            ends, last = repeats
            self._repeats[kind] = ends, msgspec.structs.replace(record, count=last.count + 1 if last else 1)
        else:
            self._repeats[kind] = time.monotonic() + self._repeat_s, None
            self._write(record)

    def _end_repeats(self, now: float) -> None:
        """Writes the counts whose time is over, and the oldest where there are too many."""
        while self._repeats:
            kind, (ends, last) = next(iter(self._repeats.items()))
            if now < ends and len(self._repeats) <= _MOST_KINDS:
                return
            del self._repeats[kind]
            if last is not None:
                self._write(last)

    def _write(self, record: Record) -> None:
        line = self._encode(msgspec.structs.replace(record, serial=next(self._serials))) + b"\n"
        while not self._written(line):
            if self._closing.is_set():
                return self._lose(1)
            self._closing.wait(_TURN_S)

    def _written(self, line: bytes) -> bool:
        try:
            self._file.write(line)
        except OSError as error:
            _failures.inc()
            if not self._failing:
                _log.error("the audit log cannot be written", file=self._file.name, why=error.strerror)
            self._failing = True
            return False
        self._failing = False
        return True

    def _lose(self, events: int) -> None:
        self._lost += events
        _lost.inc(events)


class _State:
    log: AuditLog | None = None
    service, instance = "", ""


def start_audit(service: str, instance: str, target: str) -> None:
    """Makes this process write its events to the file ``target``, or to ``stderr``; empty: nowhere.

    Raises:
        ConfigError: the file cannot be opened.
    """
    if not target:
        return
    try:
        file = LineFile(target)
    except OSError as error:
        raise ConfigError(f"audit_log = {target} cannot be written: {error.strerror}") from None
    _State.log, _State.service, _State.instance = AuditLog(file), service, instance


def stop_audit() -> int:
    """Writes what waits, for at most two seconds; returns how many events were lost since `start_audit`."""
    log, _State.log = _State.log, None
    return log.close() if log is not None else 0


def audit(
    event: Event,
    *,
    outcome: Outcome = "done",
    actor: str = "",
    tenant: str = "",
    door: str = "",
    address: str = "",
    subject: str = "",
    reason: str = "",
    request: str = "",
) -> None:
    """Has an event written; the fields are those of `Record`. Never fails and never waits. For any thread."""
    if _State.log is None:
        return
    _events.labels(event).inc()
    _State.log.note(
        Record(
            time=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            event=event,
            outcome=outcome,
            actor=actor[:_LONGEST],
            tenant=tenant[:_LONGEST],
            door=door,
            address=address[:_LONGEST],
            subject=subject[:_LONGEST],
            reason=reason[:_LONGEST],
            request=request[:_LONGEST],
            count=1,
            service=_State.service,
            instance=_State.instance,
            serial=0,
        )
    )
