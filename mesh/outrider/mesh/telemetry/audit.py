"""The audit log: one JSON object a line for each event of security, without users' text, keys or secrets.

Until `start_audit` has been given a file, `audit` does nothing. A thread writes the lines, so that no caller waits for
a disk.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

import msgspec
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry.chained_log import ChainedLog
from outrider.mesh.telemetry.line_file import LineFile
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
_MOST_KINDS = 10_000
LONGEST = 500
"""Most characters of a value."""

_events = counter("audit_events", "Events for the audit log.", ["event"])


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        time: in UTC, as RFC 3339 writes it.
        actor: who did it: ``key ID``, ``token SUBJECT``, ``certificate URI`` or ``user NAME``; of a refused request who
            it claims to be, or nothing.
        door: where it was done: ``http``, ``grpc``, ``nats``, ``admin``, ``mesh`` or ``cli``.
        subject: what was changed.
        count: events that the line stands for: refusals that repeat within `REPEAT_S` seconds make one line.
        serial: number of the line in its process, from 1.
        previous: hash of the process's line before it, as `line_hash` makes it; empty for the first.
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
    serial: int = 0
    previous: str = ""

    @property
    def kind(self) -> tuple[str, ...]:
        """What refusals that repeat have in common."""
        return self.event, self.actor, self.tenant, self.door, self.address, self.subject


class AuditLog(ChainedLog[Record]):
    """Writes records; refusals that repeat within ``repeat_s`` seconds make one line."""

    def __init__(self, file: LineFile, *, repeat_s: float = REPEAT_S) -> None:
        self._repeat_s = repeat_s
        self._repeats: dict[tuple[str, ...], tuple[float, Record | None]] = {}
        super().__init__(file)

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

    def _pass(self, now: float) -> None:
        """Writes the counts whose time is over, and the oldest where there are too many."""
        while self._repeats:
            kind, (ends, last) = next(iter(self._repeats.items()))
            if now < ends and len(self._repeats) <= _MOST_KINDS:
                return
            del self._repeats[kind]
            if last is not None:
                self._write(last)


def open_log(setting: str, target: str) -> LineFile:
    """The file ``target`` of a ``setting``; raises `ConfigError` if the file cannot be opened."""
    try:
        return LineFile(target)
    except OSError as error:
        raise ConfigError(f"{setting} = {target} cannot be written: {error.strerror}") from None


def utc_now() -> str:
    """The time of a line."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _State:
    log: AuditLog | None = None
    service, instance = "", ""


def start_audit(service: str, instance: str, target: str) -> None:
    """Makes this process write its events to the file ``target``, or to ``stderr``; empty: nowhere.

    Raises:
        ConfigError: the file cannot be opened.
    """
    if target:
        _State.log = AuditLog(open_log("audit_log", target))
        _State.service, _State.instance = service, instance


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
            time=utc_now(),
            event=event,
            outcome=outcome,
            actor=actor[:LONGEST],
            tenant=tenant[:LONGEST],
            door=door,
            address=address[:LONGEST],
            subject=subject[:LONGEST],
            reason=reason[:LONGEST],
            request=request[:LONGEST],
            count=1,
            service=_State.service,
            instance=_State.instance,
        )
    )
