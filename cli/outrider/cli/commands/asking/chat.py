"""`outrider chat`: a conversation in the terminal, or one message through a pipe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.commands.asking.answer_screen import AnswerScreen
from outrider.cli.commands.asking.complete import INTERRUPTED, figures
from outrider.cli.commands.asking.stream import STREAM, Answer, RequestError, served_model
from outrider.mesh.access import Access
from rich.console import Console

_MOST_LINES = 1000
"""Lines of the history that are kept."""
_HELP = "/reset forgets the conversation, /system TEXT sets what the model is told first, /save FILE keeps it as JSON"


@dataclass(frozen=True)
class ChatRequest:
    """A conversation that the model goes on with; None leaves a parameter to the model."""

    messages: list[dict[str, str]]
    max_tokens: int | None
    temperature: float | None

    @property
    def path(self) -> str:
        """Path of the endpoint."""
        return "/v1/chat/completions"

    def body(self, model: str) -> dict[str, Any]:
        """The request in OpenAI's form."""
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        named = {key: value for key, value in given.items() if value is not None}
        return {"messages": self.messages, "model": model, **named, **STREAM}


class Chat:
    """A conversation; what the user says begins with ``/`` for a command.

    Attributes:
        messages: all that was said, in OpenAI's form.
    """

    def __init__(
        self, access: Access, console: Console, system: str, max_tokens: int | None, temperature: float | None
    ) -> None:
        self._access, self._console = access, console
        self._max_tokens, self._temperature = max_tokens, temperature
        self._system = system
        self.messages: list[dict[str, str]] = []
        self._commands: dict[str, Callable[[str], str]] = {
            "/reset": self._reset,
            "/system": self._set_system,
            "/save": self._save,
            "/help": lambda _: f"{_HELP}; Ctrl-C ends an answer, Ctrl-D the chat.",
        }

    def enter(self, line: str) -> None:
        """Runs a command, or says ``line`` and shows the answer; prints why it cannot."""
        name, _, rest = line.strip().partition(" ")
        if not name.startswith("/"):
            self.tell(line)
        elif command := self._commands.get(name):
            self._console.print(command(rest.strip()), style="dim", highlight=False, markup=False)
        else:
            self._console.print(
                f"There is no command {name}: there are {', '.join(self._commands)}.", markup=False, highlight=False
            )

    def tell(self, text: str) -> int:
        """Says ``text`` and shows the answer; the exit code. An answer that Ctrl-C ends keeps what it has."""
        asked = [*self.messages, {"role": "user", "content": text}]
        first = [{"role": "system", "content": self._system}] if self._system else []
        answer = Answer(self._access, ChatRequest(first + asked, self._max_tokens, self._temperature))
        said, code = "", 0
        with AnswerScreen(self._console) as screen:
            try:
                for thought, content in answer.messages():
                    said += content
                    screen.write(thought, content)
            except KeyboardInterrupt:
                code = INTERRUPTED
            except RequestError as error:
                code, failure = error.exit_code, error
        if code in (0, INTERRUPTED):
            self.messages = [*asked, {"role": "assistant", "content": said}]
            if self._console.is_terminal:
                ended = "stopped" if code else figures(answer, sampled=False)
                self._console.print(ended, style="dim", highlight=False)
        else:
            print(f"outrider: {failure}", file=sys.stderr)
        return code

    def _reset(self, _: str) -> str:
        self.messages = []
        return "The conversation is forgotten."

    def _set_system(self, text: str) -> str:
        self._system = text
        return "The model is told this first." if text else "The model is told nothing first."

    def _save(self, file: str) -> str:
        try:
            Path(file).write_text(json.dumps(self.messages, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            return f"{file or '/save'} cannot be written: {error.strerror}"
        return f"{len(self.messages)} messages are in {file}."


def run(access: Access, system: str, max_tokens: int | None, temperature: float | None) -> int:
    """Talks until the end of standard input; a standard input that is no terminal is one message. The exit code."""
    chat = Chat(access, Console(), system, max_tokens, temperature)
    if not sys.stdin.isatty():
        return chat.tell(sys.stdin.read().rstrip("\n"))
    print(f"{served_model(access)} at {access.url}. /help lists commands; Ctrl-D ends.")
    with suppress(ImportError):
        _keep_history()
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            continue
        if line.strip():
            chat.enter(line)


def _keep_history() -> None:
    """Lets readline edit lines, and keep them for the next chat in a file that only this user can read."""
    import atexit
    import readline

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    file = state / "outrider" / "chat_history"
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT, 0o600))
        readline.read_history_file(file)
        readline.set_history_length(_MOST_LINES)
        atexit.register(_write_history, file)


def _write_history(file: Path) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(file)
