"""Tries definitions of grammars in another process, which a bad definition may kill."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

import msgspec
from outrider.engine.errors import RequestError
from outrider.engine.limited_process import LimitedProcess, NoAnswer
from outrider.engine.logits.grammar import refusal
from outrider.mesh.errors import Unavailable
from outrider.mesh.telemetry import get_logger
from outrider.verifier.grammars.grammar_process import CPU_S, MEMORY_BYTES

PROGRAM = (sys.executable, "-m", "outrider.verifier.grammars.grammar_process")
_ANSWER_S = 60.0
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
        arguments = [str(vocabulary), msgspec.json.encode(list(eos_ids)).decode()]
        self._process = LimitedProcess(program, arguments, tokenizer, answer_s)
        self._start_refusal: str | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return self._process.pid

    def run(self, kind: str, text: str) -> str:
        """The result of `definition`, after the process has compiled it and followed it for a few tokens.

        `RequestError` if that failed or killed the process, `Unavailable` if the process does not start, does not
        answer in time or is killed from outside.
        """
        if not self._process.started:
            self._start()
        try:
            answer = self._read(self._process.ask(msgspec.json.encode({"kind": kind, "text": text})))
        except NoAnswer as death:
            raise _death_error(death) from None
        if not answer.definition:
            raise refusal(f"cannot be compiled: {answer.refused}")
        return answer.definition

    def kill(self) -> None:
        """Ends the process, from any thread; a waiting `run` raises `Unavailable`."""
        self._process.kill()

    def _start(self) -> None:
        if self._start_refusal is not None:
            raise refusal(self._start_refusal)
        try:
            answer = self._read(self._process.start())
        except (NoAnswer, OSError) as error:
            _log.error("the process that tries grammars does not start", why=str(error))
            self._process.stop()
            raise _unavailable("does not start") from None
        if answer.refused:
            self._process.stop()
            self._start_refusal = f"needs another kind of tokenizer than this model's: {answer.refused}"
            raise refusal(self._start_refusal)

    def _read(self, answer: bytes) -> _Answer:
        """A well-formed answer; `NoAnswer` for another, which ends the process."""
        try:
            return msgspec.json.decode(answer, type=_Answer)
        except msgspec.MsgspecError:
            self._process.stop()
            raise NoAnswer(None, None) from None


def _death_error(death: NoAnswer) -> RequestError | Unavailable:
    if death.cause is None:
        _log.warning("the process that tries grammars gave no answer", code=death.code)
        return _unavailable("gave no answer")
    _log.warning("a grammar killed the process that tries grammars", signal=death.cause)
    return refusal(_DEATH_CAUSES.get(death.cause, "makes the compiler fail"))


def _unavailable(why: str) -> Unavailable:
    return Unavailable(f"no grammar can be compiled at the moment: the process for it {why}", retry_after=1.0)
