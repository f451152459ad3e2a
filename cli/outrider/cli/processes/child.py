"""One process of the mesh, run by `outrider`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

TETHER = Path(__file__).with_name("tethered.py")


@dataclass(frozen=True)
class ProcessSpec:
    """A process to keep alive: its kind, its command, and the log of its output.

    With ``named``, every start appends ``--instance`` and a new name to ``command``. ``alone`` says why no second
    process of the kind can run beside it, if so.
    """

    kind: str
    command: list[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    named: bool = True
    alone: str = ""


class Child:
    """One run of a `ProcessSpec`. The kernel kills the process when this process ends, however it ends.

    ``metrics_port`` is known once the process is ready; 0 of one without metrics.
    """

    def __init__(self, spec: ProcessSpec, instance: str) -> None:
        self.spec = spec
        self.instance = instance
        self.ready = asyncio.Event()
        self.metrics_port = 0
        self.began = time.monotonic()
        self._log_start = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Starts the process in its own session: a terminal's Ctrl-C reaches `outrider` only."""
        name = ["--instance", self.instance] if self.spec.named else []
        tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]
        with self.spec.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *tether,
                *self.spec.command,
                *name,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.spec.environment},
                start_new_session=True,
            )

    async def wait(self) -> int:
        """Waits for the end; the exit code, or minus the number of the signal that ended the process."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self, patience_s: float) -> None:
        """Asks the process to drain; kills it after ``patience_s`` seconds."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if it still runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def end_reason(self) -> str:
        """The reason why this run ended: the last line of plain text or logged exception in its log."""
        with self.spec.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode("utf-8", "replace").splitlines()
        reasons = [reason for line in lines if (reason := _reason(line, self.instance))]
        sentence = reasons[-1] if reasons else f"{self.spec.kind}: it logged nothing"
        return f"{sentence.removeprefix('outrider ')} (log: {self.spec.log})"


def _reason(line: str, instance: str) -> str:
    """The reason in a line of a log: the line itself, or the exception of a structured line of ``instance``.

    A process that this one replaces writes to the same log.
    """
    try:
        structured = msgspec.json.decode(line, type=_Structured)
    except msgspec.DecodeError:
        return line.strip()
    return structured.exception.rpartition("\n")[2] if structured.instance in ("", instance) else ""


class _Structured(msgspec.Struct):
    exception: str = ""
    instance: str = ""
