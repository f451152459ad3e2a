"""A process that does work which may take too much time or memory: its end harms nobody else.

`limited_work` has the side of the process.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

_OUTSIDE_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_END_S = 1.0


class NoAnswer(Exception):
    """A process gave no answer. ``cause`` is the signal of a limit, or of a fault of the work; None if neither is."""

    def __init__(self, cause: signal.Signals | None, code: int | None) -> None:
        super().__init__(f"exit code {code}")
        self.cause, self.code = cause, code


class LimitedProcess:
    """A program that answers messages, started at the first use and restarted after it died. For one thread at a time.

    It is a new program and not a fork, because this process has threads of gRPC.

    Args:
        program, arguments: the command to run; the number of a `multiprocessing` connection stands between them.
        first: makes the first message to each new process.
        answer_s: most seconds of wall-clock time for an answer.
        most_answer: most bytes of an answer.
    """

    def __init__(
        self,
        program: Sequence[str],
        arguments: Sequence[str],
        first: Callable[[], bytes],
        answer_s: float = 60.0,
        most_answer: int = 16 << 20,
    ) -> None:
        self._program, self._arguments, self._first = program, arguments, first
        self._answer_s, self._most_answer = answer_s, most_answer
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection[bytes, bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none."""
        return self._child.pid if self._child else None

    @property
    def started(self) -> bool:
        """Whether there is a process that was started here and runs."""
        return self._connection is not None and self._child is not None and self._child.poll() is None

    def start(self) -> bytes:
        """Starts the process anew; its answer to the first message. `NoAnswer` as `ask`, `OSError` without a start."""
        self.stop()
        ours, theirs = Pipe()
        with theirs:
            command = [*self._program, str(theirs.fileno()), *self._arguments]
            try:
                self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            except OSError:
                ours.close()
                raise
        self._connection, self._end = ours, weakref.finalize(self, _end, self._child, ours)
        _limit_waits(ours, self._answer_s)
        return self.ask(self._first())

    def ask(self, message: bytes) -> bytes:
        """The answer to a message; `NoAnswer` if the process is gone or does not answer in time, which ends it."""
        self.send(message)
        return self.receive()

    def send(self, message: bytes) -> None:
        """The first half of `ask`."""
        assert self._connection is not None
        try:
            self._connection.send_bytes(message)
        except OSError:
            raise self._death() from None

    def receive(self) -> bytes:
        """The second half of `ask`."""
        assert self._connection is not None
        try:
            return self._connection.recv_bytes(self._most_answer)
        except (EOFError, OSError):
            raise self._death() from None

    def answers(self, within_s: float) -> bool:
        """Whether `receive` would not wait, after ``within_s`` seconds at most."""
        return self._connection is not None and self._connection.poll(within_s)

    def kill(self) -> None:
        """Ends the process, from any thread; a waiting `ask` raises `NoAnswer`."""
        if (child := self._child) is not None:
            child.kill()
            child.wait()

    def stop(self) -> None:
        """Ends the process, if there is one."""
        self._end()
        self._connection = self._child = None

    def _death(self) -> NoAnswer:
        child = self._child
        assert child is not None
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_S)
        code = child.poll()
        self.stop()
        if code is None or code >= 0 or -code in _OUTSIDE_SIGNALS:
            return NoAnswer(None, code)
        return NoAnswer(signal.Signals(-code), code)


def _limit_waits(connection: Connection[bytes, bytes], seconds: float) -> None:
    """Has each read and write of the connection fail after ``seconds``."""
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end:
        limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, limit)


def _end(child: subprocess.Popen[bytes], connection: Connection[bytes, bytes]) -> None:
    connection.close()
    child.kill()
    child.wait()
