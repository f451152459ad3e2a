"""Rejection sampling: accepts drawn guesses as often as the target would have drawn them.

For one guess: Leviathan, Kalman, Matias 2023 (arXiv 2211.17192). For the children of a node drawn without replacement:
Yang et al. 2024 (arXiv 2401.06706) and Sequoia (Chen et al. 2024, arXiv 2402.12374); drawn with replacement: SpecInfer
(Miao et al. 2024, arXiv 2305.09781). Answers have the target's distribution, but the answer to a seed depends on the
drafter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from outrider.engine.speculation.acceptance.rule import AcceptanceError, VerifiedTree
from outrider.engine.speculation.trees.proposals import dense
from torch import Tensor


class Rejection:
    """Multi-candidate rejection sampling over a tree of proposals.

    Option ``replacement`` (false): whether guesses are drawn with replacement, so that several children of a node may
    have the same token.
    """

    name = "rejection"
    lossy = False
    needs_proposals = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(options.keys() - {"replacement"}):
            raise AcceptanceError(f"the rejection rule's only option is replacement, not {', '.join(unknown)}")
        self.replacement = options.get("replacement", False)
        if not isinstance(self.replacement, bool):
            raise AcceptanceError(f"the rejection rule's replacement must be true or false, not {self.replacement!r}")

    def decide(self, verified: VerifiedTree) -> list[int]:
        """At each row with proposals: a candidate, or a draw from the rest of the target's distribution.

        At other rows: the target's draw.
        """
        children = _children(verified)
        tokens = list(verified.drawn)
        rows = sorted(children)
        if not rows:
            return tokens
        p = verified.sampling.shape(verified.logits[rows]).double().softmax(-1)
        q = dense([verified.tree.proposals[row - 1] for row in rows], p.shape[-1], p)
        law = outcomes(p, q, _padded([children[row] for row in rows], p), self.replacement)
        positions = verified.positions()
        rolls = torch.stack([verified.dice.at(positions[row]) for row in rows])
        for row, token in zip(rows, (law.log() - rolls).argmax(-1).tolist(), strict=True):
            tokens[row] = token
        return tokens


def outcomes(p: Tensor, q: Tensor, candidates: Tensor, replacement: bool = False) -> Tensor:
    """The distribution of the decided token, given the candidates.

    Each candidate in turn is accepted with probability min(1, p / q). After a rejection p becomes the normalised rest
    (p - q)+, and q loses the candidate if candidates are drawn without replacement. The mean of the result over the
    candidates' draws is p.

    Args:
        p: float64 [n, V], the target's distributions.
        q: float64 [n, V], the distributions that the candidates were drawn from.
        candidates: int64 [n, k] in the order of the draw, padded with -1.
        replacement: whether candidates were drawn with replacement.

    Returns:
        float64 [n, V].
    """
    law, undecided = torch.zeros_like(p), torch.ones_like(p[:, :1])
    for place in range(candidates.shape[1]):
        column = candidates[:, place : place + 1]
        token = column.clamp(min=0)
        ratio = (p.gather(1, token) / q.gather(1, token)).clamp(max=1.0)
        valid = (column >= 0) & (q.gather(1, token) > 0)
        accepted = torch.where(valid, undecided * ratio, 0.0)
        law.scatter_add_(1, token, accepted)
        undecided = undecided - accepted
        p = torch.where(valid, _normalised((p - q).clamp(min=0.0), p), p)
        if not replacement:
            q = torch.where(valid, _normalised(q.scatter(1, token, 0.0), torch.zeros_like(q)), q)
    return law + undecided * p


def _normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def _children(verified: VerifiedTree) -> dict[int, list[int]]:
    """Candidates of each row that has a proposal, in the order of the draw."""
    candidates: dict[int, list[int]] = defaultdict(list)
    for token, parent in zip(verified.tree.tokens, verified.tree.parents, strict=True):
        if parent in verified.tree.proposals:
            candidates[parent + 1].append(token)
    return candidates


def _padded(lists: list[list[int]], like: Tensor) -> Tensor:
    width = max(map(len, lists))
    return torch.tensor([tokens + [-1] * (width - len(tokens)) for tokens in lists], device=like.device)
