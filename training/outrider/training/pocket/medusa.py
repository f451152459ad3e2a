"""Medusa heads: from the target's last hidden state, each head guesses one token further ahead.

Medusa-1 (Cai et al., arXiv:2401.10774): the target is frozen. The heads share the target's output layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from outrider.training.drafters.medusa_learner import Heads
from outrider.training.pocket.net import Llama, Shape
from outrider.training.pocket.tasks import BoundTask, distillation, load
from torch import Tensor, nn


@dataclass(frozen=True)
class MedusaTask:
    """Trains `count` heads of `layers` blocks on the frozen decoder in the safetensors file `teacher`."""

    shape: Shape
    teacher: Path
    count: int = 4
    layers: int = 1
    weight: float = 0.9

    def build(self, device: torch.device, dtype: torch.dtype, seed: int) -> BoundTask:
        """Makes new heads beside the frozen target."""
        heads = Heads(self.count, self.layers, self.shape.width).to(device, dtype)
        return _BoundMedusaTask(heads, load(self.teacher, self.shape, device, dtype), self.weight)


class _BoundMedusaTask:
    def __init__(self, heads: Heads, target: Llama, weight: float) -> None:
        self.module: nn.Module = heads
        self.heads, self.target, self.weight = heads, target, weight

    def loss(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.target.hidden(tokens[:, :-1])
        losses = [self._head(i, head, hidden, tokens) for i, head in enumerate(self.heads)]
        return torch.stack(losses).mean()

    def _head(self, i: int, head: nn.Module, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Loss of head `i` at position t against the target at t + 1 + i, which predicts token t + 2 + i."""
        student = head(hidden[:, : -1 - i]).flatten(0, 1)
        teacher = hidden[:, 1 + i :].flatten(0, 1)
        return distillation(
            lambda part: self.target.logits(student[part]),
            lambda part: self.target.logits(teacher[part]),
            tokens[:, 2 + i :].flatten(),
            self.weight,
        )
