"""Guesses drawn from a distribution, for rules of acceptance that weigh guesses by that distribution.

A drafter that proposes draws a node's children from a distribution q, without replacement or with it, as the rule
needs, with its own dice, and sends q with the guesses. The number and the confidences of children, and so which are
verified, may depend only on places in the draw, not on drawn tokens: otherwise the choice of verified guesses would
depend on the draw, and answers would not have the target's distribution.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

WIDTH = 256
"""Most tokens with a probability above 0 in a proposal distribution."""

_CONFIDENCES = (0.6, 0.2, 0.1, 0.04)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The distribution that a node's children were drawn from, one after another, in the order of the tree.

    Attributes:
        tokens: ids that could be drawn, each once.
        probabilities: float32 probability of each token.
        replacement: whether a token can be drawn again; each draw is then a child.
    """

    tokens: list[int]
    probabilities: list[float]
    replacement: bool = False


def own_seed(seed: int) -> int:
    """A seed for a drafter's own dice, independent of the target's dice for ``seed``."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8, person=b"outrider-draft")
    return int.from_bytes(digest.digest(), "little")


def confidence(place: int) -> float:
    """Prior probability that the child drawn at ``place`` (0 is the first) is right."""
    return _CONFIDENCES[place] if place < len(_CONFIDENCES) else _CONFIDENCES[-1] / (place + 1)


def propose(
    logits: Tensor, log_exponentials: Tensor, children: int, replacement: bool = False
) -> list[tuple[list[int], Proposal]]:
    """Draws equally many guesses for each node; tokens without a chance after truncation come last.

    Args:
        logits: the drafter's float32 [n, V], after temperature and truncation.
        log_exponentials: float32 [n, V] of dice that the target does not roll.
        children: most guesses of a node.
        replacement: whether each guess is drawn from the whole distribution, and so may repeat.

    Returns:
        Each node's guesses in the order of the draw, and the distribution that they were drawn from.
    """
    top = logits.topk(min(WIDTH, logits.shape[-1]))
    q = top.values.softmax(-1)
    most = min(children, q.shape[-1])
    if replacement:
        order = _independent(q, log_exponentials[:, :most])
    else:
        order = (q.log() - log_exponentials.gather(-1, top.indices)).topk(most).indices
    rows = zip(top.indices.gather(-1, order).tolist(), top.indices.tolist(), q.tolist(), strict=True)
    return [(tokens, Proposal(ids, values, replacement)) for tokens, ids, values in rows]


def _independent(q: Tensor, log_exponentials: Tensor) -> Tensor:
    """Places drawn independently from q [n, W], one for each variate [n, k]: int64 [n, k]."""
    sums = q.double().cumsum(-1)
    uniforms = log_exponentials.double().exp().neg().expm1().neg()
    return torch.searchsorted(sums, uniforms * sums[:, -1:], right=True)


def dense(proposals: list[Proposal], vocabulary: int, like: Tensor) -> Tensor:
    """Float64 [n, vocabulary] probabilities on the device of ``like``."""
    q = torch.zeros(len(proposals), vocabulary, dtype=torch.float64, device=like.device)
    for row, proposal in enumerate(proposals):
        ids = torch.tensor(proposal.tokens, device=like.device)
        q[row, ids] = torch.tensor(proposal.probabilities, dtype=torch.float64, device=like.device)
    return q
