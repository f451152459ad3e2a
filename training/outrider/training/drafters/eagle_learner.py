"""EAGLE-3 in training: the head steps over its own states, as it will when it guesses ("training-time test").

Li et al. 2025 (arXiv 2503.01840, section 3.2); deepseek-ai/DeepSpec (modeling/eagle3), the library speculators.
"""

from __future__ import annotations

from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation.heads.decoder import attend_masked
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.files import save_head
from outrider.engine.speculation.heads.shape import EagleShape
from outrider.training.drafters.eagle_start import Start
from outrider.training.drafters.learners import Learner, Read, Sequence, Size, Told, common, fresh, places, published
from outrider.training.drafters.losses import Result, Weights, distance
from outrider.training.drafters.teacher import Teacher
from torch import Tensor

_SCALE = "states.scale"
"""A tensor beside those of the head: states are divided by it while the head learns, so that one rate suits all."""


class EagleLearner(Learner):
    """Trains an EAGLE-3 head on the tokens of an answer at once, a few steps ahead of each.

    As many heads of keys as of queries: the token's embedding gets into the head through the values only, which two
    heads of 64 elements would cut to 128.
    """

    rate = 1e-4

    def __init__(self, config: ModelConfig, teacher: Teacher, layers: tuple[int, ...], size: Size, seed: int) -> None:
        self.guesses, self._teacher, self._seed = size.guesses, teacher, seed
        self._shape = EagleShape(**common(config, teacher, layers, size) | {"kv_heads": config.heads})
        self.tensors = fresh(self._shape.sizes(), seed) | {_SCALE: torch.ones(len(layers), config.hidden_size)}

    @torch.no_grad()
    def start(self, read: Read, watch: Told) -> None:
        """See `Learner`."""
        start = Start(self._shape, self._teacher, read, watch, self._seed)
        for name, tensor in start.tensors().items():
            self.tensors[name].copy_(tensor)
        self.tensors[_SCALE].copy_(start.scale.view_as(self.tensors[_SCALE]))

    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """See `Learner`; every state of the sequence is a row of the first step, of which ``most`` go on."""
        chosen, valid = places(sequence, self.guesses, dice, most)
        head = EagleHead(self._shape, self.tensors, self._teacher.embed, self._teacher.score, self._teacher.targets)
        rows, trunk = torch.arange(len(sequence.states), device=chosen.device), _Trunk(chosen - 1)
        states = head.features(sequence.states / self.tensors[_SCALE].detach())
        kept = []
        for step in range(self.guesses):
            ids = sequence.ids[(rows + 1 + step).clamp(max=len(sequence.ids) - 1)]
            states = head.run(ids, states, rows + step, trunk)
            if not step:
                rows, states = chosen - 1, states[chosen - 1]
            kept.append(states)
        scores = head.scores(torch.stack(kept, dim=1))
        at = chosen[:, None] + torch.arange(self.guesses, device=chosen.device)
        truth, known = self._teacher.truth(sequence.last, at), self._teacher.knows(sequence.ids, at)
        return distance(scores, truth, valid, known, weights)

    def write(self, directory: Path) -> None:
        """See `Learner`."""
        tensors = {name: tensor.detach().cpu() for name, tensor in self.tensors.items()}
        tensors["fc.weight"] = tensors["fc.weight"] / tensors.pop(_SCALE).flatten()
        save_head(directory, EagleHead(*published(self._shape, tensors, self._teacher)))


class _Trunk:
    """Attention of rows to those before them, and at later steps of ``chosen`` ones to their own guesses too."""

    def __init__(self, chosen: Tensor) -> None:
        self._chosen = chosen
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kept = self._kept.setdefault(index, [])
        kept.append((key, value))
        (keys, values), *rest = kept
        rows = torch.arange(len(keys), device=query.device)
        seen = (rows if not rest else self._chosen)[:, None] >= rows
        if not rest:
            return attend_masked(query, keys, values, seen)
        share = query.shape[-2] // key.shape[-2]
        keys, values = keys.repeat_interleave(share, -2), values.repeat_interleave(share, -2)
        rest = [(keys.repeat_interleave(share, -2), values.repeat_interleave(share, -2)) for keys, values in rest]
        scores = torch.einsum("ihd,jhd->hij", query, keys).masked_fill(~seen, float("-inf"))
        own = [(query * keys).sum(-1).mT[..., None] for keys, _ in rest]
        weights = (torch.cat([scores, *own], dim=-1) * query.shape[-1] ** -0.5).softmax(-1)
        found = torch.einsum("hij,jhd->ihd", weights[..., : len(rows)], values)
        for place, (_, values) in enumerate(rest):
            found = found + weights[..., len(rows) + place].mT[..., None] * values
        return found
