"""Training tasks and losses: the target's is here, the draft's in `distill`, the heads' in `medusa`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from outrider.training.pocket.net import Llama, Shape
from safetensors.torch import load_file
from torch import Tensor, nn

CHUNK = 256
Scores = Callable[[slice], Tensor]


class Task(Protocol):
    """A description of a training task, without tensors, so that it can be sent to worker processes."""

    def build(self, device: torch.device, dtype: torch.dtype, seed: int) -> BoundTask:
        """Makes the module and its loss on `device`."""
        ...


class BoundTask(Protocol):
    """A task on its device: the trained module and its loss."""

    module: nn.Module

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean loss in nats over a batch of ids [rows, length + 1]."""
        ...


def load(weights: Path, shape: Shape, device: torch.device, dtype: torch.dtype) -> Llama:
    """A frozen decoder of `shape` with the weights in the safetensors file `weights`."""
    model = Llama(shape)
    model.load_state_dict(load_file(weights))
    return model.to(device, dtype).eval().requires_grad_(False)


def distillation(student: Scores, teacher: Scores, targets: Tensor, weight: float) -> Tensor:
    """Mean of `weight` x cross-entropy to the teacher's distribution + the rest x nats of `targets` [n].

    The first term differs from the forward divergence by the teacher's entropy (Hinton et al., arXiv:1503.02531).
    `student` and `teacher` score a range of the n positions per call, so few rows of scores exist at a time.
    """
    total = torch.zeros((), device=targets.device)
    for start in range(0, len(targets), CHUNK):
        part = slice(start, start + CHUNK)
        with torch.no_grad():
            distribution = teacher(part).float().softmax(-1)
        scores = student(part).float()
        soft = F.cross_entropy(scores, distribution, reduction="sum")
        hard = F.cross_entropy(scores, targets[part], reduction="sum")
        total = total + weight * soft + (1 - weight) * hard
    return total / len(targets)


def cross_entropy(model: Llama, hidden: Tensor, targets: Tensor) -> Tensor:
    """Mean nats of `targets` [n] given `hidden` [n, width]; scores a few hundred rows at a time."""
    total = hidden.new_zeros((), dtype=torch.float32)
    for start in range(0, len(targets), CHUNK):
        part = slice(start, start + CHUNK)
        total = total + F.cross_entropy(model.logits(hidden[part]).float(), targets[part], reduction="sum")
    return total / len(targets)


@dataclass(frozen=True)
class NextTokenTask:
    """Next-token prediction."""

    shape: Shape

    def build(self, device: torch.device, dtype: torch.dtype, seed: int) -> BoundTask:
        """Makes a new decoder."""
        model = Llama(self.shape)
        model.reset(seed)
        return _BoundNextTokenTask(model.to(device, dtype))


class _BoundNextTokenTask:
    def __init__(self, model: Llama) -> None:
        self.model = model
        self.module: nn.Module = model

    def loss(self, tokens: Tensor) -> Tensor:
        hidden = self.model.hidden(tokens[:, :-1])
        return cross_entropy(self.model, hidden.flatten(0, 1), tokens[:, 1:].flatten())
