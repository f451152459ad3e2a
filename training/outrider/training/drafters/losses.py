"""Losses of heads against the target's distribution, over the draft vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a loss's parts, and how they fall with the place of a guess.

    Attributes:
        cross_entropy: to the target's distribution.
        variation: total variation: half the sum of the probabilities' differences, what rejection sampling loses.
        confidence: of the head that says how likely a guess is accepted.
        reach: the weight of guess k is exp(-k / reach), from k = 0.
    """

    cross_entropy: float = 0.1
    variation: float = 0.9
    confidence: float = 1.0
    reach: float = 4.0


@dataclass(slots=True)
class Result:
    """A loss to take the gradient of, and what it was made of.

    Attributes:
        loss: mean over the guesses.
        runs: by row [n], how many guesses in a row, from the first, had the target's likeliest token first.
        shared: by place, the sum over guesses of the probability that head and target have in common.
        count: by place, guesses.
    """

    loss: Tensor
    runs: Tensor
    shared: Tensor
    count: Tensor


def distance(
    scores: Tensor,
    teacher: Tensor,
    valid: Tensor,
    known: Tensor,
    weights: Weights,
    confidence: Tensor | None = None,
) -> Result:
    """The loss of guesses [n, places]: DSpark's (arXiv 2607.05147, deepseek-ai/DeepSpec, modeling/dspark/loss.py).

    Args:
        scores: float32 [n, places, draft_vocabulary] of the head.
        teacher: float32, the same of the target.
        valid: bool [n, places], guesses that count.
        known: bool [n, places], whether the draft vocabulary has what the target said; else no guess is right.
        weights: of the parts.
        confidence: float32 [n, places], log-odds that a guess is accepted.
    """
    log_guess, log_truth = scores.log_softmax(-1), teacher.log_softmax(-1)
    guess, truth = log_guess.exp(), log_truth.exp()
    entropy = -(truth * log_guess).sum(-1)
    variation = 0.5 * (guess - truth).abs().sum(-1)
    shared = ((1.0 - variation) * known).detach()
    places = torch.arange(valid.shape[-1], device=valid.device)
    decay = torch.exp(-places / weights.reach) * valid
    each = weights.cross_entropy * entropy + weights.variation * variation
    if confidence is not None:
        wrong = functional.binary_cross_entropy_with_logits(confidence, shared, reduction="none")
        each = each + weights.confidence * wrong
    right = ((scores.argmax(-1) == teacher.argmax(-1)) & valid & known).cumprod(-1)
    return Result(
        (each * decay).sum() / decay.sum().clamp(min=1e-6),
        right.sum(-1),
        (shared * valid).sum(0),
        valid.sum(0),
    )
