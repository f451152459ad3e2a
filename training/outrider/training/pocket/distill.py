"""The task of the draft model: learn the target's distribution, so that its guesses match the target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from outrider.training.pocket.net import Llama, Shape
from outrider.training.pocket.tasks import BoundTask, distillation, load
from torch import Tensor, nn

DRAFT = Shape(width=128, layers=2, heads=2, kv_heads=1, inner=352)


@dataclass(frozen=True)
class DistillationTask:
    """Distils the decoder in the safetensors file `teacher` into a smaller one."""

    shape: Shape
    teacher_shape: Shape
    teacher: Path
    weight: float = 0.9

    def build(self, device: torch.device, dtype: torch.dtype, seed: int) -> BoundTask:
        """Makes a new student beside the frozen teacher."""
        model = Llama(self.shape)
        model.reset(seed)
        return _BoundDistillationTask(
            model.to(device, dtype), load(self.teacher, self.teacher_shape, device, dtype), self.weight
        )


class _BoundDistillationTask:
    def __init__(self, model: Llama, teacher: Llama, weight: float) -> None:
        self.module: nn.Module = model
        self.model, self.teacher, self.weight = model, teacher, weight

    def loss(self, tokens: Tensor) -> Tensor:
        student = self.model.hidden(tokens[:, :-1]).flatten(0, 1)
        with torch.no_grad():
            teacher = self.teacher.hidden(tokens[:, :-1]).flatten(0, 1)
        return distillation(
            lambda part: self.model.logits(student[part]),
            lambda part: self.teacher.logits(teacher[part]),
            tokens[:, 1:].flatten(),
            self.weight,
        )
