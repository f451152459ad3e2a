"""What a program that `limited_process` starts is made of: a connection, answers, and limits on time and memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


class Line:
    """The connection to the process that asks, by its descriptor. Messages and answers are JSON but for the first.

    The calling process gets the priority ``nice``, and ignores Ctrl-C.
    """

    def __init__(self, fd: int, nice: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.nice(nice)
        self._connection: Connection[bytes, bytes] = Connection(fd)

    def first(self) -> bytes:
        """The first message; `EOFError` if there is none."""
        return self._connection.recv_bytes()

    def answer(self, answer: Mapping[str, Any]) -> None:
        """Sends an answer."""
        self._connection.send_bytes(json.dumps(answer).encode())

    def answer_all(self, work: Callable[[Any], Mapping[str, Any]]) -> None:
        """Answers each message with what ``work`` makes of it, until the other end is closed."""
        while True:
            try:
                message = json.loads(self._connection.recv_bytes())
            except EOFError:
                return
            self.answer(work(message))


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Ends this process, by SIGPROF, if the block takes more than ``seconds`` of CPU time.

    CPU time and not wall time: a busy machine refuses nothing that an idle one accepts.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory(more: int) -> None:
    """Lets this process take ``more`` bytes of memory than now; it leaves no core file.

    macOS counts in memory what all processes share, hundreds of gigabytes, and has no limit that could be set.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "darwin":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
