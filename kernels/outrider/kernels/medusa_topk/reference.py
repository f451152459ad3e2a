"""medusa_topk as it is written down."""

from __future__ import annotations

import torch
from torch import Tensor


def log_probabilities(hidden: Tensor, blocks: Tensor, biases: Tensor | None, outputs: Tensor) -> Tensor:
    """``log softmax(W2 (h + silu(W1 h + b1)))`` of each head in float32: [n, heads, vocabulary]."""
    made = []
    for head in range(len(outputs)):
        h = hidden.float()
        inner = h @ blocks[head].float().T
        if biases is not None:
            inner = inner + biases[head].float()
        features = h + inner * torch.sigmoid(inner)
        made.append(torch.log_softmax(features @ outputs[head].float().T, dim=-1))
    return torch.stack(made, dim=1)


def medusa_topk(
    hidden: Tensor, blocks: Tensor, biases: Tensor | None, outputs: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The ``k`` likeliest tokens of each head, equal ones by id, and their log-probabilities: [n, heads, k] each."""
    found = log_probabilities(hidden, blocks, biases, outputs)
    ordered = torch.sort(found, dim=-1, descending=True, stable=True)
    return ordered.indices[..., :k], ordered.values[..., :k]
