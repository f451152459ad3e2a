"""DSpark in training: blocks behind many tokens of an answer in one pass.

arXiv 2607.05147, on DFlash's backbone (arXiv 2602.06036); deepseek-ai/DeepSpec (modeling/dspark), and the library
speculators (models/dspark), whose layout has a draft vocabulary.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.heads.decoder import attend_masked
from outrider.engine.speculation.heads.files import save_head
from outrider.engine.speculation.heads.shape import BlockShape
from outrider.training.drafters.learners import DEVIATION, Learner, Sequence, Size, common, fresh, places, published
from outrider.training.drafters.losses import Result, Weights, distance
from outrider.training.drafters.teacher import Teacher
from torch import Tensor

_W1 = "markov_head.markov_w1.weight"


class BlockLearner(Learner):
    """Trains a DSpark head. The Markov head has rows for the draft vocabulary; other tokens share one more row."""

    def __init__(self, config: ModelConfig, teacher: Teacher, layers: tuple[int, ...], size: Size, seed: int) -> None:
        self.guesses, self._teacher = size.guesses, teacher
        self._shape = BlockShape(
            **common(config, teacher, layers, size),
            query_key_norm=True,
            block_size=size.guesses,
            mask_token=teacher.mask_token,
            from_anchor=True,
            markov_rank=size.rank,
            confidence=True,
            confidence_with_markov=True,
        )
        sizes = self._shape.sizes() | {_W1: (len(teacher.targets) + 1, size.rank)}
        self.tensors = fresh(sizes, seed)
        self.tensors[_W1] *= 1.0 / DEVIATION  # a wide table and a correction of zero: bigrams are learnt in few steps
        self.tensors["markov_head.markov_w2.weight"].zero_()

    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """See `Learner`."""
        anchors, valid = places(sequence, self.guesses, dice, most)
        head = BlockHead(self._shape, self.tensors, self._teacher.embed, self._teacher.score, self._teacher.targets)
        ahead = torch.arange(self.guesses, device=anchors.device)
        at = (anchors[:, None] + ahead).clamp(max=len(sequence.ids) - 2)
        context = head.context(sequence.states)
        keys = head.context_keys(context, torch.arange(len(context), device=anchors.device))
        attend = partial(_attend, keys, _mask(anchors, len(context), self.guesses))
        rows = head.run(head.block(sequence.ids[anchors]).flatten(), (anchors[:, None] + ahead).flatten(), attend)
        states = head.guessing(rows.view(len(anchors), self.guesses, -1))
        before = self._rows(sequence.ids[at])
        scores = head.output(states) + head.correct_block(before, states)
        truth, known = self._teacher.truth(sequence.last, at), self._teacher.knows(sequence.ids, at)
        return distance(scores, truth, valid, known, weights, head.confidence(before, states))

    def write(self, directory: Path) -> None:
        """See `Learner`."""
        tensors = {name: tensor.detach().cpu() for name, tensor in self.tensors.items()}
        own, targets = tensors[_W1], self._teacher.targets.cpu()
        tensors[_W1] = own[-1].repeat(self._shape.vocabulary, 1)
        tensors[_W1][targets] = own[:-1]
        save_head(directory, BlockHead(*published(self._shape, tensors, self._teacher)))

    def _rows(self, ids: Tensor) -> Tensor:
        """Rows of the trained Markov embedding for the target's ids."""
        known = self._teacher.places(ids)
        return torch.where(known < 0, len(self._teacher.targets), known)


def _mask(anchors: Tensor, context: int, size: int) -> Tensor:
    """Bool [rows, context + rows]: what the rows of blocks see: the states before their anchor, and their own block."""
    owner = torch.arange(len(anchors), device=anchors.device).repeat_interleave(size)
    before = torch.arange(context, device=anchors.device) < anchors[owner][:, None]
    return torch.cat([before, owner[:, None] == owner], dim=1)


def _attend(
    context: list[tuple[Tensor, Tensor]], mask: Tensor, index: int, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    keys, values = context[index]
    return attend_masked(query, torch.cat([keys, key]), torch.cat([values, value]), mask)
