"""The race in plain torch, in float32, by log-probabilities: ``argmax_v logit_v / T - log E_v``."""

from __future__ import annotations

import torch
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample.draws import BROKEN_FROM, GREEDY_BELOW, Draws, Penalties
from outrider.kernels.race_sample.truncation import least_kept
from torch import Tensor

_NEVER = float("-inf")


def race_sample(logits: Tensor, log_exponentials: Tensor) -> Tensor:
    """Winner of each row's race.

    Args:
        logits: float32 [n, V], after temperature and truncation.
        log_exponentials: float32 [n, V] of the rows' positions.

    Returns:
        int64 [n]; the lowest id on a tie.
    """
    return (logits - log_exponentials).argmax(-1)


def race_topk(logits: Tensor, log_exponentials: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """A drafter's k best guesses at each row's draw, best first.

    Args:
        logits: the drafter's float32 [n, V], after temperature and truncation.
        log_exponentials: float32 [n, V] of the rows' positions; None where the target is greedy.
        k: guesses a row.

    Returns:
        Tokens int64 [n, k] and confidences float32 [n, k]: each token's share ``(q / E) / sum(q / E)`` of the race,
        which is q itself without variates. They order guesses; a calibrator estimates how often guesses are accepted.
    """
    scores = logits if log_exponentials is None else logits - log_exponentials
    best = scores.topk(k)
    return best.indices, (best.values - scores.logsumexp(-1, keepdim=True)).exp()


def draw(logits: Tensor, draws: Draws) -> Tensor:
    """See `outrider.kernels.race_sample.draw`."""
    draws.check(logits)
    best, tokens = scores(logits, draws).max(-1)
    return tokens.masked_fill(best == _NEVER, -1).int()


def edited_logits(logits: Tensor, draws: Draws) -> Tensor:
    """Float32 [n, V] logits after penalties and mask, before temperature and truncation; not to be written to."""
    changed = logits.float() if draws.penalties is None else penalised(logits.float(), draws.penalties)
    return changed if draws.allowed is None else changed.masked_fill(~_allowed(draws.allowed, logits.shape[1]), _NEVER)


def scores(logits: Tensor, draws: Draws) -> Tensor:
    """The race's scores: float32 [n, V], minus infinity for tokens that cannot win and throughout broken rows."""
    raw = logits.float()
    changed = raw if draws.penalties is None else penalised(raw, draws.penalties)
    hot = (draws.temperatures >= GREEDY_BELOW)[:, None]
    scaled = changed / torch.where(hot, draws.temperatures[:, None], 1.0)
    if draws.allowed is not None:
        scaled = scaled.masked_fill(~_allowed(draws.allowed, logits.shape[1]), _NEVER)
    scaled = scaled.masked_fill(broken(raw) | broken(changed), _NEVER)
    if draws.truncates:
        least = least_kept(scaled, draws.top_k, draws.top_p, draws.min_p)
        scaled = scaled.masked_fill(hot & (scaled < least), _NEVER)
    return torch.where(hot, scaled - _noise(draws, hot[:, 0], logits.shape[1]), scaled)


def broken(logits: Tensor) -> Tensor:
    """Bool [n, 1]: rows with a logit that is NaN or counts as infinite."""
    return ~(logits.amax(-1, keepdim=True) < BROKEN_FROM)


def penalised(logits: Tensor, penalties: Penalties) -> Tensor:
    """A copy of float32 logits [n, V] with penalties applied."""
    counts = penalties.offsets.diff().long()
    starts = torch.arange(0, logits.numel(), logits.shape[1], device=logits.device)
    places = torch.repeat_interleave(starts, counts)
    entries = slice(0, len(places))
    places = places + penalties.tokens[entries]
    changed = logits.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    old, factors = flat[places], penalties.factors[entries]
    flat[places] = torch.where(old > 0, old / factors, old * factors) + penalties.biases[entries]
    return changed


def _allowed(words: Tensor, vocabulary: int) -> Tensor:
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device)
    return (bits & 1).bool().flatten(1)[:, :vocabulary]


def _noise(draws: Draws, hot: Tensor, vocabulary: int) -> Tensor:
    """float32 [n, V], 0 in greedy rows; rows with the same seed and position share the work."""
    noise = torch.zeros(len(hot), vocabulary, device=hot.device)
    pairs, rows = torch.unique(torch.stack([draws.seeds, draws.positions], 1)[hot], dim=0, return_inverse=True)
    noise[hot] = log_exponentials(pairs[:, 0].contiguous(), pairs[:, 1].contiguous(), vocabulary)[rows]
    return noise
