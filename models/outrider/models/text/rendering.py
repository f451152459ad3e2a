"""Renders chats by templates of models, which are programs of others, in processes with limits."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outrider.models.limited_process import LimitedProcess, NoAnswer
from outrider.models.text.chat import Part
from outrider.models.text.errors import NotRendered, TextError

_PROGRAM = (sys.executable, "-m", "outrider.models.text.template_process")
CPU_S = 5.0
"""Most CPU seconds for a chat, or for the compilation of the template."""
_MEMORY_BYTES, _HUGE_MEMORY_BYTES = 256 << 20, 512 << 20
"""Most memory of the process for usual chats, and of that for huge ones, beyond that at its start."""
MOST_CHARACTERS = 32 << 20
"""Most characters of a rendered chat."""
_HUGE = 256 << 10
"""Size of chats in bytes from which on another process, of lower priority, renders them: others do not wait."""
_NICE = 5
_MOST_ANSWER = 6 * MOST_CHARACTERS + (1 << 20)  # in JSON a character has up to 6 bytes, or 12 as a pair
_DEATH_CAUSES = {
    signal.SIGPROF: f"takes more than {CPU_S:g} s of CPU time",
    signal.SIGSEGV: "is nested too deeply",
    signal.SIGBUS: "is nested too deeply",
}


class Rendering:
    """`Chat` behind a process, with its arguments and results. Thread-safe.

    A process starts with the first chat, stays, and is replaced after it died.
    """

    def __init__(self, source: str, names: Mapping[str, str], special_tokens: Collection[str]) -> None:
        first = {"source": source, "names": dict(names), "special_tokens": list(special_tokens)}
        text = json.dumps(first).encode()
        self._usual, self._huge = _Renderer(text, 0, _MEMORY_BYTES), _Renderer(text, _NICE, _HUGE_MEMORY_BYTES)

    def start(self) -> None:
        """Starts the process for usual chats; `TextError` if the template does not compile."""
        self._usual.start()

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> list[Part]:
        """As `Chat.parts`; `TextError` also if that takes too much time or memory, `NotRendered` without a process."""
        chat = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            message = json.dumps(chat | {"variables": variables}).encode()
        except RecursionError:
            raise TextError("messages or tools are nested too deeply") from None
        return (self._huge if len(message) > _HUGE else self._usual).render(message)


class _Renderer:
    """One process, for one chat at a time."""

    def __init__(self, first: bytes, nice: int, memory: int) -> None:
        arguments = [str(nice), str(memory)]
        self._process = LimitedProcess(_PROGRAM, arguments, lambda: first, most_answer=_MOST_ANSWER)
        self._turn = threading.Lock()

    def start(self) -> None:
        with self._turn:
            self._start()

    def render(self, message: bytes) -> list[Part]:
        with self._turn:
            if not self._process.started:
                self._start()
            answer = self._read(message, "for these messages")
        return [Part(*part) for part in answer["parts"]]

    def _start(self) -> None:
        self._read(None, "to compile")

    def _read(self, message: bytes | None, purpose: str) -> Any:
        """The answer to a message, or of a new process."""
        try:
            answer = json.loads(self._process.start() if message is None else self._process.ask(message))
        except NoAnswer as death:
            raise _error(death, purpose) from None
        except OSError as error:
            raise NotRendered(f"no chat can be rendered at the moment: the process does not start: {error}") from None
        if "refused" in answer:
            if message is None:
                self._process.stop()
            raise TextError(answer["refused"])
        return answer


def _error(death: NoAnswer, purpose: str) -> TextError:
    if death.cause is None:
        return NotRendered("no chat can be rendered at the moment: the process for it gave no answer")
    return TextError(f"the chat template {_DEATH_CAUSES.get(death.cause, 'makes its process fail')} {purpose}")
