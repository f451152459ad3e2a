"""A log of JSON lines that a thread writes, each line with its number and the hash of the line before it."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
from outrider.mesh.telemetry.chained.head import Head, extending, keep, line_hash, newest
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


class ChainedLog(Generic[R]):
    """Writes records to ``file`` in a thread of its own, until `close`. For any thread.

    The fields ``chain``, ``serial`` and ``previous`` of a record are set here: the name of the chain, the number of the
    line in it, from 1, and the hash of the line before it, empty for the first. All processes that append to one file
    write one chain; one that writes elsewhere has a chain of its own, without a name. A write that fails is
    repeated every second, and logged once; records wait meanwhile. At most ``most`` records wait.
    """

    def __init__(self, file: LineFile, *, most: int = MOST_WAITING) -> None:
        self._file = file
        self._waiting: queue.Queue[R | None] = queue.Queue(most)
        self._own = Head()
        self._records: deque[R] = deque()
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
            self._lose(self._waiting.qsize() + len(self._records))
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
        """Has the next `_flush` write a record."""
        self._records.append(record)

    def _flush(self) -> None:
        while self._records and not self._written():
            if self._closing.is_set():
                self._lose(len(self._records))
                return self._records.clear()
            self._closing.wait(_TURN_S)

    def _written(self) -> bool:
        try:
            self._append()
        except OSError as error:
            _failures.inc()
            if not self._failing:
                _log.error("the audit log cannot be written", file=self._file.name, why=error.strerror)
            self._failing = True
            return False
        self._failing = False
        return True

    def _append(self) -> None:
        if not self._file.kept:
            return self._extend(self._own)
        with extending(self._file.name) as descriptor:
            self._file.follow()
            file = self._file.state()
            head = newest(descriptor, self._file.name, file)
            self._file.torn = head.torn and head.inode == file.st_ino
            try:
                self._extend(head)
            finally:
                file, torn = self._file.state(), self._file.torn
                keep(descriptor, msgspec.structs.replace(self._own, inode=file.st_ino, size=file.st_size, torn=torn))

    def _extend(self, head: Head) -> None:
        """Writes the records behind ``head``, and notes the head that they leave; `OSError` if not all were written."""
        self._own, heads, lines = head, [head], deque[bytes]()
        for record in self._records:
            link = {"chain": head.chain, "serial": head.serial + 1, "previous": head.hash}
            line = self._encode(msgspec.structs.replace(record, **link))
            head = msgspec.structs.replace(head, serial=head.serial + 1, hash=line_hash(line))
            heads.append(head)
            lines.append(line + b"\n")
        try:
            self._file.write(lines)
        finally:
            for _ in range(len(self._records) - len(lines)):
                self._records.popleft()
            self._own = heads[-1 - len(lines)]

    def _lose(self, events: int) -> None:
        self._lost += events
        _lost.inc(events)
