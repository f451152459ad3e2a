"""Prompts of a load test: code held out of the training of the shipped models, or lines of a file."""

from __future__ import annotations

import itertools
import random
import sysconfig
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import msgspec

CHARACTERS = 870
"""About 256 tokens of the shipped vocabulary."""


class PromptsError(ValueError):
    """Prompts cannot be read; the message is one sentence for the user."""


def from_file(path: Path) -> list[str]:
    """Prompts of a JSON Lines file, each line a string or an object with the key ``prompt``.

    Raises:
        PromptsError: the file is missing or has no prompt, or a line is neither.
    """
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        prompts = [_prompt(line) for line in lines]
    except (OSError, ValueError) as error:
        raise PromptsError(f"cannot read prompts from {path}: {error}") from error
    if not prompts:
        raise PromptsError(f"there are no prompts in {path}")
    return prompts


def held_out(characters: int = CHARACTERS) -> list[str]:
    """Pieces of the standard library's held-out files; the files take turns.

    Each piece is as many whole lines as fit into ``characters``.

    Raises:
        PromptsError: the shipped models or the library's sources are not installed.
    """
    listing = resources.files("outrider.engine.models") / "pocket" / "weights" / "heldout.json"
    library = Path(sysconfig.get_path("stdlib"))
    try:
        paths = [library / file["path"] for file in msgspec.json.decode(listing.read_bytes())["files"]]
        texts = [path.read_text("utf-8") for path in paths if path.is_file()]
    except (OSError, ModuleNotFoundError) as error:
        raise PromptsError(f"there is no held-out code here, give --prompts: {error}") from error
    turns = itertools.zip_longest(*(windows(text, characters) for text in texts))
    if not (prompts := [piece for turn in turns for piece in turn if piece]):
        raise PromptsError(f"none of the held-out files is in {library}: give --prompts")
    return prompts


def unique(prompts: Sequence[str], seed: str) -> Iterator[str]:
    """``prompts`` over and over, each after its own comment line, so that no prefix is cached."""
    draw = random.Random(seed)
    for prompt in itertools.cycle(prompts):
        yield f"# {draw.getrandbits(32):08x}\n{prompt}"


def windows(text: str, characters: int = CHARACTERS) -> list[str]:
    """Pieces of ``text``: as many whole lines as fit into ``characters``; drops the last, short piece."""
    pieces, piece = [], ""
    for line in text.splitlines(keepends=True):
        if piece and len(piece) + len(line) > characters:
            pieces.append(piece)
            piece = ""
        piece += line
    return pieces


def _prompt(line: str) -> str:
    value = msgspec.json.decode(line)
    prompt = value.get("prompt") if isinstance(value, dict) else value
    if not isinstance(prompt, str):
        raise ValueError(f"a line is a JSON string or an object with the key 'prompt', not {line[:60]!r}")
    return prompt
