"""Files of a training run: buffers and clock to resume from, and the weights by name."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from outrider.training.pocket.optim import Slot, State
from safetensors import safe_open
from safetensors.torch import load_file, save_file


@dataclass
class TrainingClock:
    """Progress of training: steps, tokens and seconds; saved with the weights."""

    step: int = 0
    seen: int = 0
    seconds: float = 0.0


def save_checkpoint(path: Path, state: State, clock: TrainingClock) -> None:
    """Writes buffers and clock to `path` in one rename."""
    partial = path.with_suffix(".partial")
    clock_text = {"clock": json.dumps(vars(clock))}
    save_file(vars(state), partial, metadata=clock_text)
    os.replace(partial, path)


def load_checkpoint(path: Path, state: State) -> TrainingClock:
    """Fills `state` from `path`; returns its clock."""
    for name, tensor in load_file(path).items():
        getattr(state, name).copy_(tensor)
    return read_clock(path)


def read_clock(path: Path) -> TrainingClock:
    """The clock of a checkpoint."""
    with safe_open(path, "pt") as file:
        return TrainingClock(**json.loads(file.metadata()["clock"]))


def save_weights(state: State, slots: list[Slot], path: Path) -> None:
    """Writes the master weights under their parameters' names."""
    save_file({slot.name: slot.of(state.master).cpu().clone() for slot in slots}, path)
