"""The race in plain torch, in float32, by log-probabilities: ``argmax_v logit_v / T - log E_v``."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which tokens a draw may take, applied in this order to one row.

    Attributes:
        top_k: keep the k likeliest (ties with the last are kept); 0 keeps all.
        top_p: keep the smallest set of likeliest whose probability reaches it, in (0, 1]; 1 keeps all.
        min_p: drop what is less likely than this times the likeliest, in [0, 1].
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever dropped."""
        return self.top_k == 0 and self.top_p >= 1.0 and self.min_p <= 0.0


def truncate(logits: Tensor, truncation: Truncation) -> Tensor:
    """Logits with minus infinity where ``truncation`` drops a token; the likeliest is always kept.

    Args:
        logits: float32 [n, V], already divided by the temperature.
        truncation: the same for all rows.
    """
    vocabulary = logits.shape[-1]
    if 0 < truncation.top_k < vocabulary:
        least = logits.topk(truncation.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if truncation.top_p < 1.0:
        logits = _nucleus(logits, truncation.top_p)
    if truncation.min_p > 0.0:
        probabilities = logits.softmax(-1)
        floor = probabilities.amax(-1, keepdim=True) * truncation.min_p
        logits = logits.masked_fill(probabilities < floor, float("-inf"))
    return logits


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    dropped = before >= top_p
    dropped[:, 0] = False
    return logits.masked_fill(dropped.scatter(-1, order, dropped), float("-inf"))


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
        which is q itself without variates. They order guesses; how often they come true is for a calibrator to say.
    """
    scores = logits if log_exponentials is None else logits - log_exponentials
    best = scores.topk(k)
    return best.indices, (best.values - scores.logsumexp(-1, keepdim=True)).exp()
