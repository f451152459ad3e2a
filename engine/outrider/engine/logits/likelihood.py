"""The target's own log-probabilities, for requests with ``logprobs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from outrider.kernels import elementary
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Score:
    """A token's natural log-probability, and the likeliest tokens in its place with theirs, likeliest first.

    ``rank`` is the number of tokens at least as likely as the token.
    """

    logprob: float
    top: list[tuple[int, float]]
    rank: int = 0


@torch.inference_mode()
def score(logits: Tensor, tokens: Sequence[int], top: int) -> list[Score]:
    """Scores each row's token; rows do not affect one another.

    Args:
        logits: the target's unedited logits, float32 [n, V].
        tokens: n ids.
        top: number of likeliest tokens to list; among equally likely tokens, lower ids come first.
    """
    likely = logits - _total(logits)
    picked = likely.gather(1, torch.tensor(tokens, device=logits.device).view(-1, 1))
    own, ranks = picked.view(-1).tolist(), (likely >= picked).sum(-1).tolist()
    if not top:
        return [Score(logprob, [], rank) for logprob, rank in zip(own, ranks, strict=True)]
    least = likely.topk(min(top, likely.shape[-1])).values[:, -1:]
    rows, ids = (likely >= least).nonzero(as_tuple=True)
    candidates: list[list[tuple[int, float]]] = [[] for _ in tokens]
    for row, token, logprob in zip(rows.tolist(), ids.tolist(), likely[rows, ids].tolist(), strict=True):
        candidates[row].append((token, logprob))
    best = (sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:top] for entries in candidates)
    return [Score(logprob, entries, rank) for logprob, entries, rank in zip(own, best, ranks, strict=True)]


def _total(logits: Tensor) -> Tensor:
    """Logarithm of each row's sum of exponentials, float32 [n, 1]. The sum is exact, so its order does not matter."""
    peak = logits.amax(-1, keepdim=True)
    mass = elementary.mass(logits - peak).sum(-1, keepdim=True)
    return peak + elementary.log((mass.double() * 2.0**-elementary.MASS_BITS).float())
