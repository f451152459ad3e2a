"""The tiny service as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class Tiny:
    """One `outrider tiny`, its log kept in a file."""

    def __init__(self, log: Path, *flags: str, **env: str) -> None:
        self._log = log
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OUTRIDER_")}
        path = os.pathsep.join([str(ROOT), *sys.path])
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.mesh.tiny", *flags],
                cwd=ROOT,
                env=inherited | {"PYTHONPATH": path} | env,
                stdout=out,
                stderr=out,
            )

    @property
    def output(self) -> str:
        """The whole log."""
        return self._log.read_text()

    @property
    def title(self) -> str:
        """The name that `ps` shows."""
        return Path(f"/proc/{self.process.pid}/cmdline").read_text().rstrip("\0")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of the log that are JSON objects."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line with ``event``, once there is one."""
        await eventually(lambda: self.count(event))
        return next(line for line in self.events if line["event"] == event)

    def count(self, event: str) -> int:
        """How often ``event`` was logged so far."""
        return sum(line["event"] == event for line in self.events)

    async def exit_code(self) -> int:
        """Waits for the process to end."""
        await eventually(lambda: self.process.poll() is not None)
        return self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends the signal ``number``."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kills the process if it still runs."""
        self.process.kill()
        self.process.wait()
