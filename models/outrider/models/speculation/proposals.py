"""Guesses that are drawn, not ranked: for rules of acceptance that weigh them by what they were drawn from.

A drafter that proposes draws a node's children from a distribution q, without replacement or with it as the rule asks,
with dice of its own, and says what q was. How many there are and how sure each is, and so which are verified, may
depend on its place in the draw and on nothing else of it: otherwise what is verified would depend on what was drawn,
and the answers would not have the target's distribution.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

WIDTH = 256
"""Most tokens that a proposal distribution gives a chance."""

_CONFIDENCES = (0.6, 0.2, 0.1, 0.04)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a node's children were drawn from, one after another, in the order of the tree.

    Attributes:
        tokens: ids that could be drawn, each once.
        probabilities: float32 values of each, as they were drawn from.
        replacement: whether a token that was drawn could be drawn again; it then is a child once for each time.
    """

    tokens: list[int]
    probabilities: list[float]
    replacement: bool = False


def own_seed(seed: int) -> int:
    """A seed for a drafter's own dice, which have nothing to do with those that ``seed`` fixes for the target."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8, person=b"outrider-draft")
    return int.from_bytes(digest.digest(), "little")


def confidence(place: int) -> float:
    """How surely the child drawn at ``place`` (0 is the first) is right, before anything was learnt."""
    return _CONFIDENCES[place] if place < len(_CONFIDENCES) else _CONFIDENCES[-1] / (place + 1)


def propose(
    logits: Tensor, log_exponentials: Tensor, children: int, replacement: bool = False
) -> list[tuple[list[int], Proposal]]:
    """Draws guesses for some nodes, as many for each; those that truncation left no chance stand last.

    Args:
        logits: the drafter's float32 [n, V], after temperature and truncation.
        log_exponentials: float32 [n, V], of dice that the target does not roll.
        children: most guesses a node.
        replacement: whether each guess is drawn from the whole distribution, and may be there already.

    Returns:
        For each node its guesses in the order of the draw, and what they were drawn from.
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
    """Places drawn from q [n, W] independently, one by each variate [n, k]: int64 [n, k]."""
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
