"""Tries definitions of grammars in another process, which a bad definition may kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import msgspec
from outrider.mesh.errors import InvalidRequest, Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.verifier.logits.grammar import refusal
from outrider.verifier.logits.grammar_process import CPU_S, MEMORY_BYTES

PROGRAM = (sys.executable, "-m", "outrider.verifier.logits.grammar_process")
_START_S = _ANSWER_S = 60.0
_MOST_ANSWER = 16 << 20
_OUTSIDE_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_DEATH_CAUSES = {
    signal.SIGPROF: f"takes more than {CPU_S:g} s to compile",
    signal.SIGABRT: f"takes more than {MEMORY_BYTES >> 20} MB of memory to compile",
    signal.SIGSEGV: "is nested too deeply",
    signal.SIGBUS: "is nested too deeply",
}

_log = get_logger("grammars")


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    definition: str = ""
    refused: str = ""


class Trial:
    """A process that compiles definitions, started at the first use and restarted after it died. For one thread.

    It is a new program and not a fork, because this process has threads of gRPC.

    Args:
        tokenizer, vocabulary, eos_ids: as in `Grammars`.
        program: the command to run; the arguments of `grammar_process` are appended.
        answer_s: most seconds of wall-clock time for an answer.
    """

    def __init__(
        self,
        tokenizer: Callable[[], bytes],
        vocabulary: int,
        eos_ids: Sequence[int],
        program: Sequence[str] = PROGRAM,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._tokenizer = tokenizer
        self._command = [str(vocabulary), msgspec.json.encode(list(eos_ids)).decode()]
        self._program, self._answer_s = program, answer_s
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection[bytes, bytes] | None = None
        self._start_refusal: str | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return self._child.pid if self._child else None

    def run(self, kind: str, text: str) -> str:
        """The result of `definition`, after the process has compiled it and followed it for a few tokens.

        `InvalidRequest` if that failed or killed the process, `Unavailable` if the process does not start, does not
        answer in time or is killed from outside.
        """
        connection = self._connection or self._start()
        answer = self._ask(connection, msgspec.json.encode({"kind": kind, "text": text}), self._answer_s)
        if answer is None:
            raise self._death_error()
        if not answer.definition:
            raise refusal(f"cannot be compiled: {answer.refused}")
        return answer.definition

    def kill(self) -> None:
        """Ends the process, from any thread; a waiting `run` raises `Unavailable`."""
        if (child := self._child) is not None:
            child.kill()
            child.wait()

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._connection = self._child = None

    def _start(self) -> Connection[bytes, bytes]:
        if self._start_refusal is not None:
            raise refusal(self._start_refusal)
        self._stop()
        try:
            self._connection, theirs = Pipe()
            with theirs:
                command = [*self._program, str(theirs.fileno()), *self._command]
                self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            answer = self._ask(self._connection, self._tokenizer(), _START_S)
        except OSError as error:
            _log.error("the process that tries grammars does not start", why=str(error))
            answer = None
        if answer is None or self._connection is None:
            self._stop()
            raise _unavailable("does not start")
        if answer.refused:
            self._stop()
            self._start_refusal = f"needs another kind of tokenizer than this model's: {answer.refused}"
            raise refusal(self._start_refusal)
        return self._connection

    def _ask(self, connection: Connection[bytes, bytes], message: bytes, seconds: float) -> _Answer | None:
        """The answer to a message; None if the process is gone, does not answer in time or sends a malformed answer."""
        child = self._child
        assert child is not None
        timeout = threading.Timer(seconds, child.kill)
        timeout.start()
        try:
            connection.send_bytes(message)
            return msgspec.json.decode(connection.recv_bytes(_MOST_ANSWER), type=_Answer)
        except (EOFError, OSError, msgspec.MsgspecError):
            return None
        finally:
            timeout.cancel()

    def _death_error(self) -> InvalidRequest | Unavailable:
        """The error for a process that gave no answer; ends the process."""
        child = self._child
        assert child is not None
        with suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
        code = child.poll()
        self._stop()
        if code is None or code >= 0 or -code in _OUTSIDE_SIGNALS:
            _log.warning("the process that tries grammars gave no answer", code=code)
            return _unavailable("gave no answer")
        _log.warning("a grammar killed the process that tries grammars", signal=-code)
        return refusal(_DEATH_CAUSES.get(signal.Signals(-code), "makes the compiler fail"))


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"no grammar can be compiled at the moment: the process for it {why}", retry_after=1.0)
