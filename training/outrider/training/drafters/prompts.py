"""Prompts for the target: from a file, or made of Python's standard library and of templates of questions.

A file is JSON Lines, each with ``messages`` (a chat) or ``text``, and maybe a ``kind``; or plain text, a prompt between
blank lines. Some prompts of each kind are held out: no head learns from their answers.
"""

from __future__ import annotations

import ast
import json
import random
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice, product, zip_longest
from pathlib import Path
from typing import Any

from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.questions import FRAMES, SUBJECTS, TASKS

_HELD_OUT = 0.05
_LINES = range(6, 45)
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data", "turtledemo", "site-packages"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: a chat or a text.

    Attributes:
        kind: acceptance is reported for each kind.
        said: messages of a chat, or a text.
        source: prompts of one source are held out together.
        held_out: whether no head learns from the answer.
    """

    kind: str
    said: str | Sequence[dict[str, Any]]
    source: str
    held_out: bool = False


def load(path: Path | None, seed: int, most: int) -> list[Prompt]:
    """Up to ``most`` prompts in an order that the seed fixes, kinds in turn; those of ``path``, else the made ones.

    Raises:
        TrainingError: the file cannot be read, a line is no prompt, or there are too few prompts of a kind.
    """
    found = made() if path is None else read(path)
    if not found:
        raise TrainingError(f"{path} holds no prompts: it must have JSON Lines with messages or text, or plain text")
    return list(islice(_in_turn(_split(found, seed), seed), most))


def read(path: Path) -> list[Prompt]:
    """The prompts of a file; see `load` for errors."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path} cannot be read as text: {error}") from None
    if not text.lstrip().startswith("{"):
        blocks = [block.strip("\n") for block in text.split("\n\n") if block.strip()]
        return [Prompt("text", block, block) for block in blocks]
    lines = enumerate(text.splitlines(), 1)
    return [_prompt(f"{path}, line {number},", line) for number, line in lines if line.strip()]


def made() -> list[Prompt]:
    """Prompts about functions of Python's standard library (``code``) and about everyday subjects (``chat``)."""
    chats = [Prompt("chat", _chat(frame.format(subject)), subject) for frame, subject in product(FRAMES, SUBJECTS)]
    return [*_functions(Path(sysconfig.get_path("stdlib"))), *chats]


def _prompt(where: str, line: str) -> Prompt:
    try:
        value = json.loads(line)
        said = value.get("messages", value.get("text"))
        kind = value.get("kind", "text" if isinstance(said, str) else "chat")
        is_chat = isinstance(said, list) and said and all(isinstance(each, dict) for each in said)
        if not isinstance(kind, str) or not (is_chat or (isinstance(said, str) and said)):
            raise ValueError("no messages, no text, or a kind that is no text")
    except (ValueError, AttributeError) as error:
        raise TrainingError(f"{where} is no prompt ({error}): it must be JSON with messages or text") from None
    return Prompt(kind, said, line)


def _functions(library: Path) -> list[Prompt]:
    """A task about each function of middling length in the library's files."""
    paths = (path for path in sorted(library.rglob("*.py")) if not _LEFT_OUT.intersection(path.parts))
    found = chain.from_iterable(_of_file(path, library) for path in paths)
    return [Prompt("code", _chat(task), source) for task, source in found]


def _of_file(path: Path, library: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return
    name, lines = path.relative_to(library).as_posix(), text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not node.end_lineno:
            continue
        body = lines[node.lineno - 1 : node.end_lineno]
        if len(body) in _LINES:
            margin = min(len(line) - len(line.lstrip()) for line in body if line.strip())
            task = TASKS[int(sha256(f"{name}{node.name}".encode()).hexdigest(), 16) % len(TASKS)]
            shown = body if "{whole}" in task else body[: max(3, len(body) // 3)]
            code = "\n".join(line[margin:] for line in shown)
            yield task.replace("{whole}", code).replace("{begun}", code), name


def _chat(said: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": said}]


def _split(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """The prompts, with some sources of each kind held out, at least one."""
    sources: dict[str, set[str]] = defaultdict(set)
    for prompt in prompts:
        sources[prompt.kind].add(prompt.source)
    held: set[tuple[str, str]] = set()
    for kind, named in sources.items():
        if len(named) < 2:
            raise TrainingError(f"there is one prompt of kind {kind}; each kind needs two or more, one to be held out")
        order = sorted(named, key=lambda source: sha256(f"{seed} {source}".encode()).digest())
        held.update((kind, source) for source in order[: max(1, round(_HELD_OUT * len(named)))])
    return [replace(prompt, held_out=(prompt.kind, prompt.source) in held) for prompt in prompts]


def _in_turn(prompts: Sequence[Prompt], seed: int) -> Iterator[Prompt]:
    """The prompts, shuffled; kinds take turns, and of each kind one in about 16 is held out until none is left."""
    queues: dict[tuple[str, bool], list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        queues[prompt.kind, prompt.held_out].append(prompt)
    for key in sorted(queues):
        random.Random(f"{seed} {key}").shuffle(queues[key])
    turns = [_mixed(queues[kind, False], queues[kind, True]) for kind in sorted({kind for kind, _ in queues})]
    return (prompt for turn in zip_longest(*turns) for prompt in turn if prompt is not None)


def _mixed(learnt: list[Prompt], held: list[Prompt]) -> Iterator[Prompt]:
    for number, prompt in enumerate(learnt):
        if number % 15 == 0 and number // 15 < len(held):
            yield held[number // 15]
        yield prompt
    yield from held[-(-len(learnt) // 15) :]
