"""The target as a teacher: its embedding, and its scores of the draft vocabulary from its last states."""

from __future__ import annotations

import torch
from outrider.engine.models.llama import LlamaModel
from torch import Tensor
from torch.nn import functional

_ROWS = 64


def frequent(counts: Tensor, most: int) -> Tensor:
    """The ``most`` most frequent ids, ascending; ``counts`` are int64 [vocabulary]. Equal ones: the lower ids first."""
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:most].sort().values


class Teacher:
    """Scores and embeds for heads, on the target's device; nothing here is trained.

    Attributes:
        targets: int64 [draft_vocabulary], the target's ids that heads guess, ascending.
        output: float32 [draft_vocabulary, hidden_size], their rows of the target's output layer.
        mask_token: an id that no text has, or the end of text.
    """

    def __init__(self, model: LlamaModel, targets: Tensor, mask_token: int) -> None:
        self._model, self.targets, self.mask_token = model, targets.to(model.device), mask_token
        self.output = output_rows(model, targets).to(model.device)
        self._place = torch.full((model.config.vocab_size,), -1, device=model.device)
        self._place[self.targets] = torch.arange(len(targets), device=model.device)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Float32 [..., hidden_size] that enters the target's first layer for ids [...]."""
        return self._model.embed(ids.flatten()).clone().view(*ids.shape, -1)  # a clone may be part of a graph

    def score(self, rows: Tensor) -> Tensor:
        """Float32 scores [..., draft_vocabulary] of rows [..., hidden_size] after a last norm."""
        return functional.linear(rows, self.output)

    @torch.no_grad()
    def truth(self, last: Tensor, at: Tensor) -> Tensor:
        """The target's own scores [..., draft_vocabulary] at places ``at`` [...] of ``last`` [length, hidden_size]."""
        rows, inverse = torch.unique(at.clamp(max=len(last) - 1), return_inverse=True)
        return self.score(last[rows])[inverse]

    def knows(self, ids: Tensor, at: Tensor) -> Tensor:
        """Bool [...]: whether the draft vocabulary has the tokens behind places ``at`` [...] of ``ids`` [length]."""
        return self.places(ids[(at + 1).clamp(max=len(ids) - 1)]) >= 0

    def places(self, ids: Tensor) -> Tensor:
        """Places of the target's ids in the draft vocabulary; -1 for ids that it lacks."""
        return self._place[ids]


@torch.no_grad()
def output_rows(model: LlamaModel, targets: Tensor) -> Tensor:
    """Rows of the output layer: the scores of unit vectors, which is how any packing of the weights gives them."""
    hidden = model.config.hidden_size
    found = torch.empty(len(targets), hidden)
    for start in range(0, hidden, _ROWS):
        stop = min(start + _ROWS, hidden)
        units = torch.zeros(stop - start, hidden, device=model.device)
        units[range(stop - start), range(start, stop)] = 1.0
        found[:, start:stop] = model.logits(units)[:, targets.to(model.device)].float().cpu().mT
    return found
