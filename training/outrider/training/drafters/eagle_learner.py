"""EAGLE-3 in training: the head steps over its own states, as it will when it guesses ("training-time test").

Li et al. 2025 (arXiv 2503.01840, section 3.2); deepseek-ai/DeepSpec (modeling/eagle3), the library speculators.
"""

from __future__ import annotations

from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.files import save_head
from outrider.engine.speculation.heads.shape import EagleShape
from outrider.training.drafters.learners import Learner, Sequence, Size, common, fresh, places, published
from outrider.training.drafters.losses import Result, Weights, distance
from outrider.training.drafters.teacher import Teacher
from torch import Tensor


class EagleLearner(Learner):
    """Trains an EAGLE-3 head on all tokens of a sequence at once, a few steps ahead of each."""

    def __init__(self, config: ModelConfig, teacher: Teacher, layers: tuple[int, ...], size: Size, seed: int) -> None:
        self.guesses, self._teacher = size.guesses, teacher
        self._shape = EagleShape(**common(config, teacher, layers, size))
        self.tensors = fresh(self._shape.sizes(), seed)

    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """See `Learner`; every state of the sequence is a row, of which ``most`` count."""
        chosen, valid = places(sequence, self.guesses, dice, most)
        head = EagleHead(self._shape, self.tensors, self._teacher.embed, self._teacher.score, self._teacher.targets)
        rows = torch.arange(len(sequence.states), device=chosen.device)
        states, trunk = head.features(sequence.states), _Trunk(len(rows))
        kept = []
        for step in range(self.guesses):
            ids = sequence.ids[(rows + 1 + step).clamp(max=len(sequence.ids) - 1)]
            trunk.step = step
            states = head.run(ids, states, rows + step, trunk)
            kept.append(states[chosen - 1])
        scores = head.scores(torch.stack(kept, dim=1))
        at = chosen[:, None] + torch.arange(self.guesses, device=chosen.device)
        truth, known = self._teacher.truth(sequence.last, at), self._teacher.knows(sequence.ids, at)
        return distance(scores, truth, valid, known, weights)

    def write(self, directory: Path) -> None:
        """See `Learner`."""
        tensors = {name: tensor.detach().cpu() for name, tensor in self.tensors.items()}
        save_head(directory, EagleHead(*published(self._shape, tensors, self._teacher)))


class _Trunk:
    """Attention of row i at step s: the rows up to i of step 0, and rows i of the steps 1 to s, its own guesses."""

    def __init__(self, rows: int) -> None:
        self.step, self._rows = 0, rows
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        share = query.shape[-2] // key.shape[-2]
        key, value = key.repeat_interleave(share, -2), value.repeat_interleave(share, -2)
        kept = self._kept.setdefault(index, [])
        kept.append((key, value))
        first, rest = kept[0], kept[1 : self.step + 1]
        future = torch.ones(self._rows, self._rows, dtype=torch.bool, device=query.device).triu(1)
        seen = torch.einsum("ihd,jhd->hij", query, first[0]).masked_fill(future, float("-inf"))
        own = [(query * keys).sum(-1).mT[..., None] for keys, _ in rest]
        weights = (torch.cat([seen, *own], dim=-1) * query.shape[-1] ** -0.5).softmax(-1)
        found = torch.einsum("hij,jhd->ihd", weights[..., : self._rows], first[1])
        for place, (_, values) in enumerate(rest):
            found = found + weights[..., self._rows + place].mT[..., None] * values
        return found
