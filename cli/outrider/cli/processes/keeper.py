"""Keeps one process of the mesh running."""

from __future__ import annotations

import asyncio
import signal
from secrets import token_hex
from typing import Protocol

from outrider.cli.processes.child import Child, ProcessSpec

FAILED_STARTS = 3
"""Starts in a row that may end before the process is ready; after them the mesh gives up."""
FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0


class StartError(Exception):
    """The mesh, or a service of it, cannot start: one sentence, and the exit code of `outrider`."""

    def __init__(self, message: str, exit_code: int = 3) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ProcessEvents(Protocol):
    """Receives the events of kept processes."""

    def ready(self, child: Child, address: str) -> None:
        """``child`` serves at ``address``."""

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        """``child`` ended by itself with exit code ``code``; it restarts in ``again_in_s`` seconds."""

    def report(self, line: str) -> None:
        """``line`` says what a restart of all services did, which processes are waited for, or which is ended."""


class ProcessKeeper:
    """Starts a process, and restarts it when it ends by itself; the delay doubles with each start that failed.

    Attributes:
        was_ready: set once a start was ready.
        failed: set once a start ended before it was ready.
    """

    def __init__(self, spec: ProcessSpec, events: ProcessEvents) -> None:
        self.spec = spec
        self.child: Child | None = None
        self.was_ready, self.failed = asyncio.Event(), asyncio.Event()
        self._events = events
        self._stopping = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"keep {spec.kind}")

    @property
    def stopping(self) -> bool:
        """Whether the process is to end for good."""
        return self._stopping.is_set()

    def note_ready(self, instance: str, address: str, metrics_port: int = 0) -> None:
        """Records that ``instance`` is ready, if this keeper runs it."""
        if self.child and self.child.instance == instance and not self.child.ready.is_set():
            self.child.metrics_port = metrics_port
            self.child.ready.set()
            self.was_ready.set()
            self._events.ready(self.child, address)

    async def stop(self, patience_s: float) -> None:
        """Ends the process for good: asks first, kills after ``patience_s`` seconds."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        _, running = await asyncio.wait({self.task}, timeout=patience_s)
        if running:
            self.kill()
            await asyncio.wait({self.task})

    def kill(self) -> None:
        """Ends the process for good, at once."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            child = await self._start()
            code = await child.wait()
            if self._stopping.is_set():
                return
            failures = 0 if child.ready.is_set() else failures + 1
            if failures:
                self.failed.set()
            if code >= 0 and failures >= FAILED_STARTS:
                raise StartError(child.end_reason(), code or 1)
            await self._pause(child, code, min(FIRST_DELAY_S * 2**failures, LONGEST_DELAY_S))

    async def _start(self) -> Child:
        self.child = Child(self.spec, f"{self.spec.kind}-{token_hex(4)}")
        await self.child.start()
        if self._stopping.is_set():
            self.child.signal(signal.SIGKILL)
        return self.child

    async def _pause(self, child: Child, code: int, delay_s: float) -> None:
        self._events.died(child, code, delay_s)
        await asyncio.wait({asyncio.ensure_future(self._stopping.wait())}, timeout=delay_s)

    def _signal(self, number: signal.Signals) -> None:
        if self.child is not None:
            self.child.signal(number)
