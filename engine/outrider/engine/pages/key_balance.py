"""Factors that even out the features of keys before they become integers.

Some models have a few features of keys many times larger than all others, mostly by the biases of their keys. A head's
scale follows its largest feature, so the others would have few of the 255 integers left. Keys are divided by factors
and queries multiplied by them, which changes no product of a query and a key, as SmoothQuant does with products
(Xiao et al. 2023, arXiv 2211.10438). The two features that rotary positions turn together have the same factor.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DEVIATIONS = 3.0
"""How far a feature goes from its bias, in standard deviations."""
_MOST = 8
"""How many powers of two below the largest pair of a head smaller ones count: no factor is further from 1."""


def key_balance(sizes: Tensor, heads: int) -> Tensor:
    """Factors of queries and of keys, float32 [heads + kv_heads, head_dim].

    Args:
        sizes: float32 [kv_heads, head_dim], how large each feature of a key becomes; neighbours are turned together.
        heads: of the queries.
    """
    pairs = sizes.double().view(len(sizes), -1, 2).square().sum(-1).clamp(min=1e-60).log2() / 2
    pairs = pairs.clamp(min=pairs.amax(1, keepdim=True) - _MOST)
    exponents = (pairs - pairs.mean(1, keepdim=True)).repeat_interleave(2, 1)
    queries = exponents.exp2().repeat_interleave(heads // len(sizes), 0)
    return torch.cat([queries, (-exponents).exp2()]).float()


def key_sizes(weight: Tensor, bias: Tensor | None) -> Tensor:
    """How large each feature of keys becomes, [features], behind a norm of which each feature has a mean square of 1.

    Args:
        weight: [features, hidden_size], with the norm's weight in its columns.
        bias: [features], or None.
    """
    spread = weight.float().square().sum(1) * _DEVIATIONS**2
    return (spread if bias is None else spread + bias.float().square()).sqrt()
