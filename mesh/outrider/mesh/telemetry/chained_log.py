"""A file of JSON lines that a thread writes, each line with its number and the hash of the line before it."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from outrider.mesh.telemetry.line_file import LineFile
from outrider.mesh.telemetry.logs import get_logger
from outrider.mesh.telemetry.metrics import counter

R = TypeVar("R", bound=msgspec.Struct)

MOST_WAITING = 10_000
"""Most records that wait for the file; later ones are lost, and counted."""
_TURN_S = 1.0
_GATHER_S = 0.05
"""Seconds between two writes; all lines of that time are one write."""
_CLOSE_S = 2.0

_log = get_logger("audit")
_lost = counter("audit_lost_events", "Events that did not reach the audit log.")
_failures = counter("audit_failed_writes", "Attempts to write to the audit log that failed; they are repeated.")


def line_hash(line: bytes) -> str:
    """SHA-256 of a ``line`` without its end, hexadecimal, as the next line of its process holds it."""
    return hashlib.sha256(line).hexdigest()


class ChainedLog(Generic[R]):
    """Writes records to ``file`` in a thread of its own, until `close`. For any thread.

    A record has the fields ``serial`` and ``previous``, which are set here: the number of the line in this process,
    from 1, and the hash of this process's line before it, empty for the first. A write that fails is repeated every
    second, and logged once; records wait meanwhile. At most ``most`` records wait.
    """

    def __init__(self, file: LineFile, *, most: int = MOST_WAITING) -> None:
        self._file = file
        self._waiting: queue.Queue[R | None] = queue.Queue(most)
        self._serial, self._previous = 0, ""
        self._lines: deque[bytes] = deque()
        self._closing = threading.Event()
        self._failing, self._lost = False, 0
        self._encode = msgspec.json.Encoder().encode
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def note(self, record: R) -> None:
        """Has ``record`` written; a record for which there is no room is counted as lost."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            if not self._lost:
                waiting = self._waiting.qsize()
                _log.error("the audit log loses events: too many wait", file=self._file.name, waiting=waiting)
            self._lose(1)

    def close(self, wait_s: float = _CLOSE_S) -> int:
        """Writes what waits, for at most ``wait_s`` seconds; returns how many events were lost since the start."""
        self._closing.set()
        with suppress(queue.Full):
            self._waiting.put(None, timeout=wait_s)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._lose(self._waiting.qsize() + len(self._lines))
        return self._lost

    def _run(self) -> None:
        while self._take_all():
            self._pass(time.monotonic())
            self._flush()
            self._closing.wait(_GATHER_S)
        self._pass(float("inf"))
        self._flush()

    def _take_all(self) -> bool:
        """Takes what waits, or waits for a record for a second; whether more may come."""
        try:
            record = self._waiting.get(timeout=_TURN_S)
            while record is not None:
                self._take(record)
                record = self._waiting.get_nowait()
        except queue.Empty:
            return True
        return False

    def _take(self, record: R) -> None:
        """Writes a record; a subclass may hold records back."""
        self._write(record)

    def _pass(self, now: float) -> None:
        """Called at least every second with the monotonic time, and with infinity at the end."""

    def _write(self, record: R) -> None:
        """Makes the line of a record, which the next `_flush` writes."""
        line = self._encode(msgspec.structs.replace(record, serial=self._serial + 1, previous=self._previous))
        self._serial, self._previous = self._serial + 1, line_hash(line)
        self._lines.append(line + b"\n")

    def _flush(self) -> None:
        while self._lines and not self._written():
            if self._closing.is_set():
                self._lose(len(self._lines))
                return self._lines.clear()
            self._closing.wait(_TURN_S)

    def _written(self) -> bool:
        try:
            self._file.write(self._lines)
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
