"""Renders chats by templates of models, which are programs of others, in processes with limits."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from outrider.engine.limited_process import LimitedProcess, NoAnswer
from outrider.engine.text.chat import Part
from outrider.engine.text.errors import NotRendered, TextError

_PROGRAM = (sys.executable, "-m", "outrider.engine.text.template_process")
CPU_S = 5.0
"""Most CPU seconds for a chat, or for the compilation of the template."""
_MEMORY_BYTES, _HUGE_MEMORY_BYTES = 256 << 20, 512 << 20
"""Most memory of the process for usual chats, and of that for huge ones, beyond that at its start."""
MOST_CHARACTERS = 32 << 20
"""Most characters of a rendered chat."""
_HUGE = 256 << 10
"""Size of chats in bytes from which on another process, of lower priority, renders them: others do not wait."""
_NICE = 5
_SOON_S = 0.001
"""Seconds for which `Rendering.begin` waits: a usual chat takes a tenth of that, and a hop to a thread as long."""
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

    def forget(self) -> None:
        """Ends the processes, which may hold parts of chats; a chat that is being rendered is `NotRendered`."""
        for renderer in (self._usual, self._huge):
            renderer.kill()

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> list[Part]:
        """As `Chat.parts`; `TextError` also if that takes too much time or memory, `NotRendered` without a process."""
        message = _message(messages, tools, add_generation_prompt, variables, continue_final_message)
        return (self._huge if len(message) > _HUGE else self._usual).render(message)

    def begin(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> Future[list[Part]] | None:
        """As `parts`, and returns within about a millisecond: the future is often done. Not to be cancelled.

        None where the process is busy or has to start: then `parts` waits. `TextError` for a chat that is nested too
        deeply.
        """
        message = _message(messages, tools, add_generation_prompt, variables, continue_final_message)
        return self._usual.begin(message)


class Renderings:
    """A model's renderings: one for chats, and one for chats with tools where ``tool_template`` is another template."""

    def __init__(
        self, template: str | None, tool_template: str | None, names: Mapping[str, str], special_tokens: Collection[str]
    ) -> None:
        self._names, self._special_tokens = names, special_tokens
        sources = dict.fromkeys(source for source in (template, tool_template) if source is not None)
        made = {source: Rendering(source, names, special_tokens) for source in sources}
        self._all, self._plain = list(made.values()), made.get(template or "")
        self._with_tools = made.get(tool_template or "", self._plain)

    def __bool__(self) -> bool:
        """Whether chats can be rendered."""
        return self._plain is not None

    def of(self, tools: Sequence[Mapping[str, Any]] | None) -> Rendering:
        """The rendering for chats with ``tools``, or without; `TextError` if there is none."""
        rendering = self._with_tools if tools else self._plain
        if rendering is None:
            raise TextError("this model has no chat template: only plain completions are possible")
        return rendering

    def new(self, source: str) -> Rendering:
        """The rendering of another template, which nobody else has; `Rendering.forget` ends its processes."""
        return Rendering(source, self._names, self._special_tokens)

    def start(self) -> None:
        """See `Rendering.start`."""
        for rendering in self._all:
            rendering.start()

    def forget(self) -> None:
        """See `Rendering.forget`."""
        for rendering in self._all:
            rendering.forget()


class _Renderer:
    """One process, for one chat at a time."""

    def __init__(self, first: bytes, nice: int, memory: int) -> None:
        arguments = [str(nice), str(memory)]
        self._process = LimitedProcess(_PROGRAM, arguments, lambda: first, most_answer=_MOST_ANSWER)
        self._turn = threading.Lock()
        self._waiting = ThreadPoolExecutor(1, "rendering")

    def start(self) -> None:
        with self._turn:
            self._start()

    def kill(self) -> None:
        self._process.kill()

    def render(self, message: bytes) -> list[Part]:
        with self._turn:
            if not self._process.started:
                self._start()
            return self._parts(lambda: self._process.ask(message))

    def begin(self, message: bytes) -> Future[list[Part]] | None:
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if not self._process.started:
                raise NoAnswer(None, None)
            self._process.send(message)
        except NoAnswer:
            self._turn.release()
            return None
        if not self._process.answers(_SOON_S):
            return self._waiting.submit(self._finish)
        future: Future[list[Part]] = Future()
        try:
            future.set_result(self._finish())
        except TextError as error:
            future.set_exception(error)
        return future

    def _finish(self) -> list[Part]:
        """The answer to the message that was sent; ends the turn."""
        try:
            return self._parts(self._process.receive)
        finally:
            self._turn.release()

    def _parts(self, ask: Callable[[], bytes]) -> list[Part]:
        return [Part(*part) for part in _read(ask, "for these messages")["parts"]]

    def _start(self) -> None:
        try:
            _read(self._process.start, "to compile")
        except TextError:
            self._process.stop()
            raise


def _read(ask: Callable[[], bytes], purpose: str) -> Any:
    """The answer of a process that ``ask`` returns."""
    try:
        answer = json.loads(ask())
    except NoAnswer as death:
        raise _error(death, purpose) from None
    except OSError as error:
        raise NotRendered(f"no chat can be rendered at the moment: the process does not start: {error}") from None
    if "refused" in answer:
        raise TextError(answer["refused"])
    return answer


def _message(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    add_generation_prompt: bool,
    variables: Mapping[str, Any] | None,
    continue_final_message: bool,
) -> bytes:
    chat = {
        "messages": messages,
        "tools": tools,
        "add_generation_prompt": add_generation_prompt,
        "variables": variables,
        "continue_final_message": continue_final_message,
    }
    try:
        return json.dumps(chat).encode()
    except RecursionError:
        raise TextError("messages or tools are nested too deeply") from None


def _error(death: NoAnswer, purpose: str) -> TextError:
    if death.cause is None:
        return NotRendered("no chat can be rendered at the moment: the process for it gave no answer")
    return TextError(f"the chat template {_DEATH_CAUSES.get(death.cause, 'makes its process fail')} {purpose}")
