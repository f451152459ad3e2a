"""Services as real processes, with their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests import freezing, nursery
from tests import latch as latched

_STOP_S = 60.0
_READY_S = 240.0
_LAST_LINES = 40
SERVING = "outrider.verifier.service:VerifierService"
ALWAYS = "outrider.benches.verifier.always:AlwaysAsking"
"""Programs of a verifier: the usual one, and one that asks every drafter at every step."""


class ServiceProcess:
    """``python -m outrider.<kind>`` with settings as flags; its log goes to ``log``.

    Args:
        latch: stops the requests of a verifier.
        program: ``MODULE:SERVICE`` that replaces the kind's service.
    """

    def __init__(
        self, kind: str, log: Path, *, latch: latched.Latch | None = None, program: str = "", **settings: object
    ) -> None:
        self.kind = kind
        self.log = log
        self.settings = settings
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        module = program.partition(":")[0] or f"outrider.{kind}"
        started = (*latched.PROGRAM, program or SERVING) if latch else (sys.executable, "-m", module)
        self._command, self._ended_by_us = [*started, *flags], False
        self._environment = {"OMP_NUM_THREADS": "1"} | (latch.environment if latch else {})
        self._process: nursery.Child | subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process; `wait_ready` waits until it is ready."""
        self._ended_by_us = False
        self._began_at = self.log.stat().st_size if self.log.exists() else 0
        self._process = nursery.start(self._command, {**os.environ, **self._environment}, self.log)

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Fails if the process has ended by itself; the message has its last log lines."""
        started = self._process is not None
        assert not started or self.alive or self._ended_by_us, f"{self.kind} ended: {self.last_lines()}"

    def last_lines(self) -> str:
        """The last log lines of the latest run."""
        output = self.log.read_bytes()[self._began_at :].decode(errors="replace")
        return "\n".join(output.splitlines()[-_LAST_LINES:])

    def wait_ready(self) -> None:
        """Returns when the log has the event ``ready``; fails if the process ends before."""
        deadline = time.monotonic() + _READY_S
        while b'"event": "ready"' not in self.log.read_bytes()[self._began_at :]:
            assert self.alive, f"{self.kind} ended: {self.last_lines()}"
            assert time.monotonic() < deadline, f"{self.kind} did not become ready"
            time.sleep(0.05)

    def terminate(self) -> None:
        """Asks the process to drain and end."""
        self._ended_by_us = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process, as a crash would."""
        self._ended_by_us = True
        self._signal(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        """Stops the process: its connections stay open, and no bytes move."""
        freezing.freeze(self.pid)

    def thaw(self) -> None:
        """Ends `freeze`."""
        freezing.thaw(self.pid)

    def wait(self) -> int:
        """Waits for the end; returns the exit code."""
        assert self._process is not None
        return self._process.wait(_STOP_S)

    def stop(self) -> None:
        """Drains the process; kills it if it does not end."""
        if not self.alive:
            return
        self.terminate()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def running(kind: str, log: Path, **settings: object) -> Iterator[ServiceProcess]:
    """A process that ends with the block."""
    process = ServiceProcess(kind, log, **settings)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def followers(pid: int) -> list[int]:
    """Process ids of the other ranks of a model whose rank 0 is the process ``pid``."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(each.read_text().rpartition(")")[2].split()[1])
            if parent == pid and "models.sharding.follow" in (each.parent / "cmdline").read_text():
                found.append(int(each.parent.name))
    return found


def has_open(pid: int, name: str) -> bool:
    """Whether the process has a file of this name open."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            if each.readlink().name == name:
                return True
    return False
