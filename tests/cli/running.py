"""`outrider up` as a process."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence

from tests.cli.calls import CLI

READY = re.compile(r"✓ (\w+) +(\S*) +(\S+:\d+) +pid (\d+)")
"""A line for a process that is ready: its kind, name, address and process id."""


class Up:
    """`outrider up` and its output; the command ``within`` runs it, if there is one."""

    def __init__(self, *arguments: str, within: Sequence[str] = (), **environment: str) -> None:
        self.process = subprocess.Popen(
            [*within, *CLI, "up", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line)

    def kill(self) -> None:
        """Kills the process without draining."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def wait_for(self, pattern: str, count: int = 1, seconds: float = 240) -> list[re.Match[str]]:
        """Matches of ``pattern`` in the output, once there are ``count``."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if len(matches := list(re.finditer(pattern, "".join(self.lines)))) >= count:
                return matches
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in:\n{''.join(self.lines)}")

    def pids(self, kind: str) -> list[int]:
        """Process ids of a kind, oldest first."""
        return [int(match[4]) for match in READY.finditer("".join(self.lines)) if match[1] == kind]
