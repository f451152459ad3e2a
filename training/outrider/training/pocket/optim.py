"""The optimiser: Muon for matrices, AdamW for the embedding, norms and biases, over flat float32 master weights.

Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon) steps along the orthogonal matrix nearest to the
momentum, found by Newton-Schulz; AdamW is Loshchilov & Hutter (arXiv:1711.05101).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OptimizerSettings:
    """Peak step sizes and constants of Muon and AdamW."""

    muon: float = 0.02
    adam: float = 3e-3
    momentum: float = 0.95
    beta1: float = 0.9
    beta2: float = 0.95
    decay: float = 0.1


def orthogonalise(g: Tensor, steps: int = 5) -> Tensor:
    """Semi-orthogonal matrices nearest to a batch `g` [n, rows, columns], in bfloat16, by a quintic iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    out: Tensor = x.mT if tall else x
    return out


@dataclass(frozen=True)
class Slot:
    """The place of one parameter in the flat buffers."""

    name: str
    start: int
    shape: torch.Size

    @property
    def stop(self) -> int:
        """One past the last element."""
        return self.start + self.shape.numel()

    @property
    def matrix(self) -> bool:
        """Whether Muon updates the parameter: a matrix that is not an embedding."""
        return len(self.shape) == 2 and "embed" not in self.name

    def of(self, flat: Tensor) -> Tensor:
        """This parameter's view of the flat buffer `flat`."""
        return flat[self.start : self.stop].view(self.shape)


def layout(module: nn.Module) -> list[Slot]:
    """A slot for every trainable parameter of `module`, in order."""
    slots, start = [], 0
    for name, p in module.named_parameters():
        if p.requires_grad:
            slots.append(Slot(name, start, p.shape))
            start = slots[-1].stop
    return slots


def divide(part: list[Slot], workers: int) -> list[list[Slot]]:
    """Deals `part` to `workers`, so that each updates about the same number of elements."""
    parts: list[list[Slot]] = [[] for _ in range(workers)]
    for slot in sorted(part, key=lambda s: (-s.shape.numel(), s.start)):
        min(parts, key=lambda part: sum(s.shape.numel() for s in part)).append(slot)
    return parts


@dataclass
class State:
    """Flat float32 buffers: weights, Muon's momentum or Adam's first moment, and Adam's second moment."""

    master: Tensor
    first: Tensor
    second: Tensor


def step(
    state: State, slots: list[Slot], gradient: Tensor, settings: OptimizerSettings, scale: float, number: int
) -> None:
    """Applies update `number` (from 1) to `slots`; `scale` in 0..1 multiplies both step sizes.

    `gradient` is flat as the buffers are, and holds the mean over the batch.
    """
    matrices: dict[torch.Size, list[Slot]] = {}
    for slot in slots:
        if slot.matrix:
            matrices.setdefault(slot.shape, []).append(slot)
        else:
            _adam(state, slot, slot.of(gradient), settings, scale, number)
    for group in matrices.values():
        _muon(state, group, gradient, settings, scale)


def _adam(state: State, slot: Slot, g: Tensor, settings: OptimizerSettings, scale: float, number: int) -> None:
    first, second, weight = slot.of(state.first), slot.of(state.second), slot.of(state.master)
    first.lerp_(g, 1 - settings.beta1)
    second.lerp_(g * g, 1 - settings.beta2)
    mean = first / (1 - settings.beta1**number)
    deviation = (second / (1 - settings.beta2**number)).sqrt() + 1e-10
    weight.sub_(mean / deviation, alpha=scale * settings.adam)


def _muon(state: State, group: list[Slot], gradient: Tensor, settings: OptimizerSettings, scale: float) -> None:
    nesterov = []
    for slot in group:
        g, momentum = slot.of(gradient), slot.of(state.first)
        momentum.lerp_(g, 1 - settings.momentum)
        nesterov.append(g.lerp(momentum, settings.momentum))
    directions = orthogonalise(torch.stack(nesterov)).float()
    rate = scale * settings.muon
    size = max(1.0, group[0].shape[0] / group[0].shape[1]) ** 0.5
    for slot, direction in zip(group, directions, strict=True):
        slot.of(state.master).mul_(1 - rate * settings.decay).sub_(direction, alpha=rate * size)
