"""Services as real processes, told apart by their instance and found through the registry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STOP_S = 20.0


class ServiceProcess:
    """``python -m outrider.<kind>`` with settings as flags; its log goes to ``log``."""

    def __init__(self, kind: str, log: Path, **settings: object) -> None:
        self.kind = kind
        self.log = log
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        self._command = [sys.executable, "-m", f"outrider.{kind}", *flags]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; it is ready when the registry says so."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def terminate(self) -> None:
        """Asks it to drain and end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Takes it away as a crash would."""
        self._signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Exit code, once it has ended."""
        assert self._process is not None
        return self._process.wait(_STOP_S)

    def stop(self) -> None:
        """Ends it one way or the other."""
        if self._process is None or self._process.poll() is not None:
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
