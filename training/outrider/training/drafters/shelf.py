"""Answers of the target on disk: ids and hidden states in files of a stated size, mapped into memory.

``states.bin`` holds bfloat16 [tokens, layers, hidden_size], ``ids.bin`` int32 [tokens], and a line of ``answers.jsonl``
says where a sequence is. A line is written after its tokens, so that a broken run loses the sequences under way only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from outrider.training.drafters.errors import TrainingError
from torch import Tensor

LEAST_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A prompt with its answer on the shelf.

    Attributes:
        number: of the prompt.
        kind: of the prompt.
        held_out: whether no head learns from it.
        start: the first token's place on the shelf.
        prompt: tokens of the prompt.
        length: tokens of prompt and answer. The last one has no states.
    """

    number: int
    kind: str
    held_out: bool
    start: int
    prompt: int
    length: int


class Shelf:
    """Sequences in files of a directory.

    Args:
        directory: where the files are, or will be.
        about: what the states are of; a directory with other answers is refused.
        layers: states of a token.
        hidden_size: of the target.
        most_bytes: size of the files.

    Attributes:
        entries: the sequences, in the order of their prompts' numbers after `sort`.
        capacity: most tokens.
    """

    def __init__(
        self, directory: Path, about: dict[str, Any], layers: int, hidden_size: int, most_bytes: float
    ) -> None:
        self.capacity = int(most_bytes) // (2 * layers * hidden_size + 4)
        if self.capacity < LEAST_TOKENS:
            raise TrainingError(
                f"{most_bytes / 1e9:g} GB of disk hold {self.capacity} tokens with their states; "
                f"it must be room for {LEAST_TOKENS} or more"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self._index = directory / "answers.jsonl"
        _agree(directory / "about.json", about | {"layers": layers, "hidden_size": hidden_size})
        size = self.capacity * layers * hidden_size
        states, ids = directory / "states.bin", directory / "ids.bin"
        self._states = _mapped(states, size, torch.bfloat16).view(-1, layers, hidden_size)
        self._ids = _mapped(ids, self.capacity, torch.int32)
        lines = self._index.read_text().splitlines() if self._index.exists() else []
        self.entries = [Entry(**json.loads(line)) for line in lines if line.endswith("}")]
        self._end = max((entry.start + entry.length for entry in self.entries), default=0)

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.capacity - self._end

    @property
    def answered(self) -> int:
        """Tokens of all answers."""
        return sum(entry.length - entry.prompt for entry in self.entries)

    def add(self, number: int, kind: str, held_out: bool, prompt: int, ids: Sequence[int], states: Tensor) -> bool:
        """Writes a sequence of ``ids`` with the ``states`` of all but the last, if there is room for it."""
        if len(ids) > self.room:
            return False
        entry = Entry(number, kind, held_out, self._end, prompt, len(ids))
        self._ids[entry.start : entry.start + entry.length] = torch.tensor(ids, dtype=torch.int32)
        self._states[entry.start : entry.start + len(states)] = states
        self._end += entry.length
        with self._index.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")
        self.entries.append(entry)
        return True

    def sort(self) -> None:
        """Puts `entries` in the order of their prompts: that of their end depends on timing."""
        self.entries.sort(key=lambda entry: entry.number)

    def ids(self, entry: Entry) -> Tensor:
        """Int64 [length]."""
        return self._ids[entry.start : entry.start + entry.length].long()

    def states(self, entry: Entry) -> Tensor:
        """Float32 [length - 1, layers, hidden_size]."""
        return self._states[entry.start : entry.start + entry.length - 1].float()


def _mapped(path: Path, size: int, dtype: torch.dtype) -> Tensor:
    """A tensor over a file, which takes disk where it is written only; a shorter file grows."""
    with path.open("ab") as file:
        if path.stat().st_size < size * dtype.itemsize:
            file.truncate(size * dtype.itemsize)
    return torch.from_file(str(path), shared=True, size=size, dtype=dtype)


def _agree(path: Path, about: dict[str, Any]) -> None:
    text = json.dumps(about, indent=1, sort_keys=True)
    if not path.exists():
        path.write_text(text)
    elif path.read_text() != text:
        raise TrainingError(f"{path.parent} holds answers of another target or other prompts: name another folder")
