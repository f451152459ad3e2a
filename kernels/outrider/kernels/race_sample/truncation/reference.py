"""Truncation in torch, by sorting: each rule gives the least logit that it keeps.

Probabilities are summed as integers (`outrider.kernels.elementary.mass`), so that the order of summing changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from outrider.kernels import elementary
from torch import Tensor

SHARE_BITS = 24
"""Fraction bits of top_p."""

_LIKELY = 256
"""Likeliest tokens in which a nucleus is searched first."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which tokens a draw may take, applied in this order to one row.

    Attributes:
        top_k: keep the k likeliest (ties with the last are kept); 0 keeps all.
        top_p: keep the smallest set of likeliest whose probability reaches it, in (0, 1] (ties with the last are
            kept); 1 keeps all.
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
    if truncation.keeps_all:
        return logits
    rows = len(logits)
    top_k = torch.full((rows,), truncation.top_k, dtype=torch.int32, device=logits.device)
    top_p, min_p = (torch.full((rows,), p, device=logits.device) for p in (truncation.top_p, truncation.min_p))
    least = least_kept(
        logits,
        top_k if truncation.top_k > 0 else None,
        top_p if truncation.top_p < 1.0 else None,
        min_p if truncation.min_p > 0.0 else None,
    )
    return logits.masked_fill(logits < least, float("-inf"))


def least_kept(logits: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None) -> Tensor:
    """The least logit that each row keeps; minus infinity where it keeps all.

    Args:
        logits: float32 [n, V] without NaN or infinity, already divided by the temperature.
        top_k: int32 [n]; None where no row has one.
        top_p: float32 [n], likewise.
        min_p: float32 [n], likewise.

    Returns:
        float32 [n, 1].
    """
    least = torch.full_like(logits[:, :1], float("-inf"))
    if top_k is not None:
        least = _kth(logits, top_k.long()[:, None])
    if top_p is not None:
        least = _nucleus(logits, least, top_p[:, None])
    if min_p is not None:
        peak, share = logits.amax(-1, keepdim=True), min_p[:, None]
        floor = (peak + elementary.log(share.clamp(2.0**-100, 1.0))).minimum(peak)
        least = torch.where(share > 0, least.maximum(floor), least)
    return least


def _kth(logits: Tensor, top_k: Tensor) -> Tensor:
    vocabulary = logits.shape[-1]
    most = min(vocabulary, max(1, int(top_k.max())) if len(top_k) else 1)
    ordered = _largest(logits, most)
    kth = ordered.gather(-1, (top_k - 1).clamp(0, most - 1))
    return torch.where((top_k > 0) & (top_k < vocabulary), kth, float("-inf"))


def _nucleus(logits: Tensor, least: Tensor, top_p: Tensor) -> Tensor:
    """The least logit under top-p. Sorts few logits first; exact sums show whether those are enough."""
    peak = logits.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    target_mass = share(_masses(logits, least, peak).sum(-1, keepdim=True), top_p).masked_fill_(top_p >= 1, 0)
    for most in (_LIKELY, logits.shape[-1]):
        ordered = _largest(logits, min(most, logits.shape[-1]))
        reached = _masses(ordered, least, peak).cumsum(-1)
        if (reached[:, -1:] >= target_mass).all():
            break
    last = (reached < target_mass).sum(-1, keepdim=True).clamp(max=ordered.shape[-1] - 1)
    return torch.where(top_p < 1, ordered.gather(-1, last), least)


def _largest(logits: Tensor, most: int) -> Tensor:
    """The ``most`` largest of each row, largest first; on a CPU NumPy selects and sorts many times as fast as torch."""
    if logits.device.type != "cpu":
        return logits.topk(most).values
    values = logits.numpy()
    if most < values.shape[-1]:
        values = np.partition(values, -most, axis=-1)[:, -most:]
    return torch.from_numpy(np.sort(values, axis=-1)[:, ::-1].copy())


def _masses(logits: Tensor, least: Tensor, peak: Tensor) -> Tensor:
    return elementary.mass(logits - peak).masked_fill_(logits < least, 0)


def share(total: Tensor, top_p: Tensor) -> Tensor:
    """``top_p`` of the mass ``total``, rounded up, and at least 1; top_p counts in units of 2**-24, rounded down."""
    units = (top_p.clamp(0, 1) * 2.0**SHARE_BITS).long().clamp(min=1)
    high, low = total >> SHARE_BITS, total & ((1 << SHARE_BITS) - 1)
    return high * units + (low * units + (1 << SHARE_BITS) - 1 >> SHARE_BITS)
