"""The usage log: one JSON object a line for each request that was answered, without users' text, keys or secrets.

Until `start_usage_log` has been given a file, `note_usage` does nothing and `keeps_usage()` is false.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from outrider.mesh.telemetry.audit import LONGEST, open_log, utc_now
from outrider.mesh.telemetry.chained.log import ChainedLog


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        time: when the request ended, in UTC, as RFC 3339 writes it.
        outcome: ``done`` if all answers are whole, ``failed`` with an ``error``, or ``left`` where the client, or a
            gateway that took over, ended the reading.
        actor: ``key ID`` or ``token SUBJECT``; empty without access control.
        door: ``http``, ``grpc`` or ``nats``.
        input_tokens: tokens of prompts that the caller is charged for.
        output_tokens: generated tokens that the caller is charged for.
        finish_reasons: of the answers that are whole.
        error: type of the error that ended the request.
        seconds: from the submission to verifiers to the end.
        chain: as in `Record`.
        serial: as in `Record`.
        previous: as in `Record`.
    """

    time: str = msgspec.field(default_factory=utc_now)
    outcome: Literal["done", "failed", "left"]
    actor: str
    tenant: str
    door: str
    address: str
    request: str
    model: str
    choices: int
    input_tokens: int
    output_tokens: int
    finish_reasons: list[str]
    error: str
    seconds: float
    service: str = ""
    instance: str = ""
    chain: str = ""
    serial: int = 0
    previous: str = ""


class _State:
    log: ChainedLog[UsageRecord] | None = None
    service, instance = "", ""


def start_usage_log(service: str, instance: str, target: str) -> None:
    """Makes this process write usage to the file ``target``, or to ``stderr``; empty: nowhere.

    Raises:
        ConfigError: the file cannot be opened.
    """
    if target:
        _State.log = ChainedLog(open_log("usage_log", target))
        _State.service, _State.instance = service, instance


def stop_usage_log() -> int:
    """Writes what waits, for at most two seconds; returns how many lines were lost since `start_usage_log`."""
    log, _State.log = _State.log, None
    return log.close() if log is not None else 0


def keeps_usage() -> bool:
    """Whether this process writes usage."""
    return _State.log is not None


def note_usage(record: UsageRecord) -> None:
    """Has a line written, with the name of this process. Never fails and never waits. For any thread."""
    if _State.log is not None:
        of_here = {"service": _State.service, "instance": _State.instance, "actor": record.actor[:LONGEST]}
        _State.log.note(msgspec.structs.replace(record, **of_here))
