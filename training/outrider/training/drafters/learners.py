"""What is trained: the tensors of a head, and its loss on a sequence of the target's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.families.rope import RopeConfig
from outrider.engine.speculation.heads.shape import HeadShape
from outrider.training.drafters.losses import Result, Weights
from outrider.training.drafters.teacher import Teacher
from torch import Tensor

DEVIATION = 0.02
"""Of new weights, as in the target's family."""
ShapeT = TypeVar("ShapeT", bound=HeadShape)


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence to learn from.

    Attributes:
        ids: int64 [length].
        prompt: how many of them are the prompt.
        states: float32 [length - 1, layers, hidden_size] of the recorded layers but the last.
        last: float32 [length - 1, hidden_size], the states behind the last norm.
    """

    ids: Tensor
    prompt: int
    states: Tensor
    last: Tensor


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a head.

    Attributes:
        guesses: tokens that it guesses ahead.
        layers: decoder layers; blocks of a Medusa head.
        inner: width of the feed-forward block; 0 takes that of the target, at most four times its hidden size.
        rank: of DSpark's Markov head.
    """

    guesses: int = 5
    layers: int = 1
    inner: int = 0
    rank: int = 64

    def inner_of(self, config: ModelConfig) -> int:
        """Width of the feed-forward block for a target."""
        usual = 4 * config.hidden_size
        return self.inner or min(config.intermediate_size or usual, usual)


Read = Callable[[], Iterator[Sequence]]
"""Goes through the sequences to learn from."""
Told = Callable[[int, int], None]
"""Is told what is done, and all."""


class Learner(ABC):
    """A head in training.

    Attributes:
        tensors: what is trained, by published name; some hold less than the file will.
        guesses: tokens that the head guesses ahead.
        rate: highest step size of AdamW that suits it.
    """

    tensors: dict[str, Tensor]
    guesses: int
    rate = 1e-3

    def start(self, read: Read, watch: Told) -> None:  # noqa: B027
        """Solves for tensors to begin with, if they have a closed form; else they stay as drawn."""

    @abstractmethod
    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """The loss of guesses behind up to ``most`` tokens of the answer, drawn by ``dice``."""

    @abstractmethod
    def write(self, directory: Path) -> None:
        """Writes the head in its authors' layout, in bfloat16."""


def fresh(sizes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """New tensors: norms are ones, biases zeros, the rest normal; a function of names and seed."""
    dice = torch.Generator().manual_seed(seed)
    made = {}
    for name in sorted(sizes):
        if name.endswith("norm.weight") or len(sizes[name]) == 1:
            made[name] = torch.zeros(sizes[name]) if name.endswith("bias") else torch.ones(sizes[name])
        else:
            made[name] = torch.randn(sizes[name], generator=dice) * DEVIATION
    return made


def common(config: ModelConfig, teacher: Teacher, layers: tuple[int, ...], size: Size) -> dict[str, Any]:
    """What heads with decoder layers have: sizes like those of the target, plain rotary positions of its base."""
    return {
        "hidden_size": config.hidden_size,
        "target_hidden_size": config.hidden_size,
        "target_layers": layers,
        "layers": size.layers,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": size.inner_of(config),
        "norm_eps": config.norm_eps,
        "rope": RopeConfig(config.rope.theta),
        "vocabulary": config.vocab_size,
        "draft_vocabulary": len(teacher.targets),
    }


def published(
    shape: ShapeT, tensors: dict[str, Tensor], teacher: Teacher
) -> tuple[ShapeT, dict[str, Tensor], None, None, Tensor | None]:
    """The parts of a head as files have it: with rows of the output layer for a smaller draft vocabulary."""
    targets = teacher.targets.cpu()
    if len(targets) < shape.vocabulary:
        shape, tensors = replace(shape, own_output=True), tensors | {"lm_head.weight": teacher.output.cpu()}
    small = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    return shape, small, None, None, targets if shape.own_output else None


def places(sequence: Sequence, guesses: int, dice: torch.Generator, most: int) -> tuple[Tensor, Tensor]:
    """Up to ``most`` tokens of the answer to guess behind, int64 [n] ascending, and which guesses count, [n, guesses].

    A guess counts where the target has said the token and its state before is known.
    """
    length = len(sequence.ids)
    room = torch.arange(sequence.prompt, length - 1)
    chosen = room[torch.randperm(len(room), generator=dice)[:most]].sort().values
    valid = chosen[:, None] + torch.arange(guesses) <= length - 2
    return chosen.to(sequence.ids.device), valid.to(sequence.ids.device)
