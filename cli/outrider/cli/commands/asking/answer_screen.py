"""Shows an answer while it comes: Markdown in a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from outrider.cli.commands.asking.complete import VISIBLE
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

_FENCES = ("```", "~~~")
_RENEWALS_S = 8


class AnswerScreen:
    """A context that shows pieces of text. In a terminal, thoughts are dim, and elsewhere left out.

    Blocks of Markdown that have ended are printed for good; the last one is drawn anew as it grows.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._terminal = console, console.is_terminal
        self._live: Live | None = None
        self._text, self._thinks, self._plain = "", False, False

    def __enter__(self) -> AnswerScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._console.print(Markdown(self._text))
        elif self._plain or self._thinks:
            print(flush=True)

    def write(self, thought: str, content: str) -> None:
        """Shows a piece of a thought, or of what is said."""
        if not self._terminal:
            self._plain = True
            sys.stdout.write(content)
            sys.stdout.flush()
            return
        if thought:
            self._thinks = True
            self._console.print(thought.translate(VISIBLE), style="dim", end="", markup=False, highlight=False)
        if content:
            self._write_markdown(content.translate(VISIBLE))

    def _write_markdown(self, content: str) -> None:
        if self._live is None:
            if self._thinks:
                self._console.print("\n")
            self._live = Live(console=self._console, transient=True, refresh_per_second=_RENEWALS_S)
            self._live.start()
        self._text += content
        if (ended := ended_blocks(self._text)) and self._text[:ended].strip():
            self._live.update("")
            self._console.print(Markdown(self._text[:ended]), end="\n\n")
            self._text = self._text[ended:]
        self._live.update(Markdown(self._text))


def ended_blocks(text: str) -> int:
    """The length of the blocks of Markdown in ``text`` that have ended: up to the last empty line outside of code."""
    in_code, place, ended = False, 0, 0
    for line in text.splitlines(keepends=True):
        place += len(line)
        if line.lstrip().startswith(_FENCES):
            in_code = not in_code
        elif not line.strip() and line.endswith("\n") and not in_code:
            ended = place
    return ended
