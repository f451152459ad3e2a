"""Refusals that repeat: the audit log has one line for the first, and one with the count of all others of a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

import msgspec
from outrider.mesh.sites import site_named
from outrider.mesh.telemetry.audit_record import Record

REPEAT_S = 60.0
"""Seconds for which refusals like one that was written are counted, and then written as one line."""
MOST_CALLERS = 1000
"""Most lines that refused callers without a valid key begin in `REPEAT_S` seconds; callers with one begin as many."""

_OTHERS = f"more than {MOST_CALLERS} callers were refused in {REPEAT_S:g} s: this line stands for all others"

_Kind = tuple[str, ...]


class _Repeat(NamedTuple):
    """When the time of a kind of refusal is over, and the line of those that came after the first."""

    ends: float
    line: Record | None = None


class Repeats:
    """Counts refusals by caller. For any thread.

    A caller with a valid key is known by the key. Any other caller is known by its address alone, whatever key it
    claims to have; all IPv6 addresses of one site are one.
    """

    def __init__(self, repeat_s: float = REPEAT_S, most: int = MOST_CALLERS) -> None:
        self._repeat_s, self._most = repeat_s, most
        self._known: dict[_Kind, _Repeat] = {}
        self._unknown: dict[_Kind, _Repeat] = {}
        self._others: dict[_Kind, _Repeat] = {}
        self._lock = threading.Lock()

    def first(self, record: Record) -> Record | None:
        """The line to write of a refusal; None where it is counted with those before it."""
        with self._lock:
            repeats, kind = self._known if record.known else self._unknown, _kind(record)
            if kind not in repeats and len(repeats) >= self._most:
                repeats, kind = self._others, (record.event, record.door)
                record = msgspec.structs.replace(
                    record, actor="", tenant="", address="", subject="", request="", reason=_OTHERS
                )
            if (repeat := repeats.get(kind)) is None:
                repeats[kind] = _Repeat(time.monotonic() + self._repeat_s)
                return record
            repeats[kind] = _Repeat(repeat.ends, _joined(repeat.line, record))
            return None

    def over(self, now: float) -> list[Record]:
        """The lines of counts whose time is over at ``now``, in seconds of the monotonic clock."""
        with self._lock:
            return [line for repeats in (self._known, self._unknown, self._others) for line in _taken(repeats, now)]


def _taken(repeats: dict[_Kind, _Repeat], now: float) -> Iterator[Record]:
    """Takes out what is over; all end in the order in which they began."""
    for kind, repeat in list(takewhile(lambda item: item[1].ends <= now, repeats.items())):
        del repeats[kind]
        if repeat.line is not None:
            yield repeat.line


def _kind(record: Record) -> _Kind:
    """What refusals that make one line have in common."""
    caller = (record.actor, record.tenant) if record.known else ()
    return record.event, record.door, record.subject, site_named(record.address), *caller


def _joined(line: Record | None, record: Record) -> Record:
    """The line for all that ``line`` stands for and for ``record``; what they do not have in common is left out."""
    if line is None:
        return record
    return msgspec.structs.replace(
        record,
        count=line.count + 1,
        actor=record.actor if record.actor == line.actor else "",
        address=record.address if record.address == line.address else site_named(record.address),
    )
