"""The audit log: one JSON object a line for each event of security, without users' text, keys or secrets.

Until `start_audit` has been given a file, `audit` does nothing. A thread writes the lines, so that no caller waits for
a disk.
"""

from __future__ import annotations

from datetime import UTC, datetime

from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry.audit_record import Event, Outcome, Record
from outrider.mesh.telemetry.chained.log import ChainedLog
from outrider.mesh.telemetry.line_file import LineFile
from outrider.mesh.telemetry.metrics import counter
from outrider.mesh.telemetry.repeats import Repeats

LONGEST = 500
"""Most characters of a value."""
_events = counter("audit_events", "Events for the audit log.", ["event"])


class AuditLog(ChainedLog[Record]):
    """Writes records; refusals that repeat make one line, as `Repeats` says, and never wait for the file one by one."""

    def __init__(self, file: LineFile) -> None:
        self._repeats = Repeats()
        super().__init__(file)

    def note(self, record: Record) -> None:
        """As `ChainedLog.note`, unless the record is counted with others."""
        first = self._repeats.first(record) if record.repeats else record
        if first is not None:
            super().note(first)

    def _pass(self, now: float) -> None:
        """Writes the counts whose time is over."""
        for line in self._repeats.over(now):
            self._write(line)


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
