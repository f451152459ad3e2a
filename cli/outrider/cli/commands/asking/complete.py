"""`outrider complete`: a completion in the terminal, with accepted guesses in green."""

from __future__ import annotations

import sys

from outrider.cli.commands.asking.stream import Answer, CompletionRequest, RequestError
from outrider.mesh.access import Access
from rich.console import Console

INTERRUPTED = 130
DIM, GREEN = "2", "32"
VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
"""Signs for control characters, by code."""


class Screen:
    """Standard output; in a terminal, text has colours and control characters are visible."""

    def __init__(self) -> None:
        console = Console()
        self._terminal = console.is_terminal
        self.colours = console.is_terminal and not console.no_color

    def write(self, text: str, colour: str = "") -> None:
        """Shows ``text`` at once; ``colour`` is a parameter of ECMA-48's SGR."""
        shown = text.translate(VISIBLE) if self._terminal else text
        sys.stdout.write(f"\x1b[{colour}m{shown}\x1b[0m" if colour and shown and self.colours else shown)
        sys.stdout.flush()


def run(access: Access, request: CompletionRequest) -> int:
    """Streams the answer to standard output, its figures to standard error; returns the exit code."""
    screen, answer = Screen(), Answer(access, request)
    try:
        _show(screen, request, answer)
    except RequestError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        screen.write("\n")
        return INTERRUPTED
    if screen.colours:
        screen.write("green: guessed by a drafter", GREEN)
        screen.write("\n")
    print(figures(answer, sampled=request.temperature > 0), file=sys.stderr)
    return 0


def _show(screen: Screen, request: CompletionRequest, answer: Answer) -> None:
    for number, (text, drafter) in enumerate(answer):
        if number == 0 and not request.chat:
            screen.write(request.prompt, DIM)
        screen.write(text, GREEN if drafter else "")
    screen.write("\n")


def figures(answer: Answer, *, sampled: bool) -> str:
    """One line of figures for an answer that has ended."""
    parts = [
        f"{answer.tokens} tokens",
        f"{answer.steps} steps",
        f"{answer.tokens / max(1, answer.steps):.2f} tokens a step",
    ]
    if guesses := answer.accepted + answer.rejected:
        parts.append(f"{answer.accepted / guesses:.0%} of {guesses} guesses right")
    parts += [f"{answer.tokens / answer.total_s:.0f} tokens/s", f"first token after {answer.first_s * 1e3:.0f} ms"]
    if sampled and answer.seed is not None:
        parts.append(f"seed {answer.seed}")
    return " · ".join(parts)
